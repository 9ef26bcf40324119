# SPDX-License-Identifier: MIT
"""Tokens that slurmrestd hands on to SLURM: one that is not good is no outage, and another one is taken in time."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import CreateAccount
from agent.core.checks import Check, CheckState
from agent.core.errors import BackendError, BackendUnavailable
from agent.core.model import Part
from backends.base import Scope
from backends.slurm import rest_token
from backends.slurm.rest.client import RequestDenied
from backends.slurm.rest_access import RestAccess
from backends.slurm.rest_token import TOKEN, Token, TokenMissing
from rig.processes import wait_until
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import by_rest

TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
HOUR = 3600


def jwt(*, user: str = "w", made_s: float = -HOUR, ends_s: float | None = HOUR, note: str = "") -> str:
    """A token whose times are seconds from now."""
    now = time.time()
    claims = {"sun": user, "iat": int(now + made_s), "note": note}
    if ends_s is not None:
        claims["exp"] = int(now + ends_s)
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{middle}.signature"


# On the real one ------------------------------------------------------------------------------------


def expired(server: Slurmrestd) -> str:
    token = server.token(lifespan_s=1)
    wait_until("its end", lambda: rest_token.Claims.of(token).left_s < -1)
    return token


BAD: dict[str, tuple[Callable[[Slurmrestd], str], str]] = {
    "expired": (expired, "it ended at .* UTC"),
    "truncated": (lambda server: server.token().strip()[:-9], "refuses the token of root"),
    "of somebody else": (
        lambda server: server.token(user="jobs1"),
        "it is the token of jobs1, and rest_api.username is root",
    ),
    "of nobody": (lambda server: server.token(user="nosuch"), "it is the token of nosuch"),
    "no token": (lambda _: "SLURM_JWT=abc", "refuses the token of root"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_token_that_is_not_good_is_no_outage_and_is_read_again(
    real_slurmrestd: Slurmrestd, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, sentence = BAD[kind]
    file = tmp_path / "token"
    file.write_text(make(real_slurmrestd))
    backend = by_rest({**real_slurmrestd.access, "token_file": str(file)}, tmp_path)()
    with pytest.raises(RequestDenied, match=sentence) as raised:
        backend.observe(TREE)
    assert f"Renew rest_api.token_file {file}" in str(raised.value)
    assert raised.value.of_host
    jobs = backend.observe(Scope(frozenset(), jobs_of=frozenset({"root"})))
    assert not jobs.active_jobs  # unknown, not none
    assert "refuses the token of root (511)" in caplog.text
    file.write_text(real_slurmrestd.token())
    assert "root" in backend.observe(TREE).accounts


def test_slurmdbd_away_is_an_outage_with_a_good_token(real_slurmrestd: Slurmrestd, tmp_path: Path) -> None:
    backend = by_rest(real_slurmrestd.access, tmp_path)()
    backend.observe(TREE)
    real_slurmrestd.cluster.stop_slurmdbd()
    try:
        with pytest.raises(BackendUnavailable, match="Check slurmdbd"):
            backend.observe(TREE)
    finally:
        real_slurmrestd.cluster.start_slurmdbd()
    wait_until("slurmdbd for slurmrestd", lambda: _answers(backend))


def _answers(backend: Any) -> bool:
    try:
        return "root" in backend.observe(TREE).accounts
    except BackendError:
        return False


def test_scontrol_makes_tokens(
    real_slurmrestd: Slurmrestd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = real_slurmrestd.cluster
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    command = f"{cluster.bin_path}/scontrol token username=root lifespan=864000"
    access = {**real_slurmrestd.access, "token_file": None, "token_command": command}
    backend = by_rest(access, tmp_path)()
    assert backend.apply([CreateAccount(account="t_made", parent="root")])[0].done
    look = backend.checks()["token of slurmrestd"]()
    assert isinstance(look, Check) and look.state is CheckState.OK
    assert "in 9 d" in look.found


def test_who_may_not_change_anything_is_told_so(real_slurmrestd: Slurmrestd, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(real_slurmrestd.token(user="jobs1"))
    access = {**real_slurmrestd.access, "token_file": str(file), "username": "jobs1"}
    backend = by_rest(access, tmp_path)()
    (outcome,) = backend.apply([CreateAccount(account="t_denied", parent="root")])
    assert isinstance(outcome.error, RequestDenied)
    assert "AdminLevel Operator" in str(outcome.error)
    assert "t_denied" not in backend.observe(TREE).accounts


# Without one ----------------------------------------------------------------------------------------


def token_of(file: Path, **keys: Any) -> Token:
    return Token(RestAccess(url="http://x", username="w", token_file=str(file), **keys))


def test_a_token_that_is_about_to_end_is_looked_for_again_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest_token, "LOOK_AGAIN_S", -1.0)
    file = tmp_path / "token"
    file.write_text(jwt(made_s=-HOUR, ends_s=60))
    token = token_of(file)
    for _ in range(3):
        token.headers()
    (said,) = caplog.messages
    assert said.startswith("the token of w ends at ") and said.endswith("and there is no newer one")
    (warned,) = token.warnings()
    assert warned.endswith(f"renew rest_api.token_file {file}")
    assert token.check().state is CheckState.WARNING
    file.unlink()
    assert token.headers()[TOKEN]  # it is good for a minute
    file.write_text(jwt(note="new"))
    assert token.headers()[TOKEN] == file.read_text()
    assert (token.warnings(), token.check().state) == ([], CheckState.OK)


ENDS: list[tuple[dict[str, Any], CheckState, str]] = [
    ({"made_s": -10, "ends_s": 1790}, CheckState.OK, "in 29 min"),
    ({"made_s": -1400, "ends_s": 400}, CheckState.WARNING, "in 6 min"),
    ({"made_s": -86400 * 355, "ends_s": 86400 * 10}, CheckState.OK, "in 9 d"),
    ({"made_s": -86400 * 360, "ends_s": 86400 * 5}, CheckState.WARNING, "in 4 d"),
    ({"ends_s": -5}, CheckState.PROBLEM, "it ended at"),
    ({"ends_s": None}, CheckState.OK, "says of no end"),
    ({"ends_s": 10**15}, CheckState.OK, "says of no end"),
    ({"user": "other"}, CheckState.PROBLEM, "it is the token of other, and rest_api.username is w"),
]


@pytest.mark.parametrize(("claims", "state", "said"), ENDS)
def test_the_end_of_a_token_is_known_without_its_key(
    tmp_path: Path, claims: dict[str, Any], state: CheckState, said: str
) -> None:
    (tmp_path / "token").write_text(jwt(**claims))
    found = token_of(tmp_path / "token").check()
    assert found.state is state
    assert said in found.found


@pytest.mark.parametrize(
    "odd", ["abc", "a.b.c", "..", "a.W10.c", "a.eyJleHAiOiJ4In0.c", "a.!!!.c", "x" * 99999]
)
def test_a_token_that_says_nothing_is_used_as_it_is(tmp_path: Path, odd: str) -> None:
    (tmp_path / "token").write_text(odd)
    token = token_of(tmp_path / "token")
    assert token.headers()[TOKEN] == odd
    assert token.check().state is CheckState.OK


def test_a_token_that_another_thread_has_renewed_is_renewed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    token = token_of(file)
    sent = token.headers()
    assert not token.renew(sent)
    file.write_text("new")
    assert token.renew(sent)
    assert token.renew(sent)  # the second of two requests that went with the old one
    assert not token.renew(token.headers())


def test_a_command_is_run_once_and_again_before_its_token_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    made.write_text(jwt())
    script = f'echo run >>{tmp_path}/runs; echo "SLURM_JWT=$(cat {made})"'
    command = ("sh", "-c", script)
    token = Token(RestAccess(url="http://x", username="w", token_command=command))
    first, _ = token.headers(), token.headers()
    assert first[TOKEN] == made.read_text()
    assert (tmp_path / "runs").read_text() == "run\n"
    made.write_text(jwt(ends_s=9))
    assert token.renew(first)
    monkeypatch.setattr(rest_token, "LOOK_AGAIN_S", -1.0)
    made.write_text(jwt(note="next"))
    assert token.headers()[TOKEN] == made.read_text()
    assert (tmp_path / "runs").read_text() == "run\n" * 3


NO_TOKEN: list[tuple[tuple[str, ...], str]] = [
    # Quoted so that the command itself, which errors name, does not have the word that it prints.
    (("sh", "-c", "echo sec''ret; echo not allowed >&2; exit 3"), "ended with code 3: not allowed"),
    (("true",), "has no token"),
    (("sh", "-c", "echo two words"), "has no token"),
    (("/no/such/program",), "cannot start `/no/such/program`.*rest_api.token_command"),
]


@pytest.mark.parametrize(("command", "sentence"), NO_TOKEN)
def test_a_command_without_a_token_is_said_without_what_it_printed(
    command: tuple[str, ...], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = Token(RestAccess(url="http://x", username="w", token_command=command))
    with pytest.raises(BackendError, match=sentence) as raised:
        token.headers()
    assert isinstance(raised.value, TokenMissing) or raised.value.of_host
    assert "secret" not in f"{raised.value}{caplog.text}"
