# SPDX-License-Identifier: MIT
"""What comes of answers that slurmrestd should not give, and of none: the state is unknown, nothing is removed, and the
token is printed nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.core.actions import DeleteAccount, RemoveMember, SetLimits
from agent.core.checks import Check, CheckState
from agent.core.errors import BackendError, BackendUnavailable, JobsStillActive, NotEmpty, ParseError
from agent.core.model import Account, Part, Snapshot
from backends.base import BackendContext, Reread, Scope
from backends.slurm.plugin import plugin
from backends.slurm.rest.backend import RestSlurmBackend
from backends.slurm.rest.client import AnswerTooLarge, RequestDenied, RequestRefused
from backends.slurm.schema import parse
from rig.certificate import LOOPBACK, make_certificate
from tests.agent.waldur.stand_in import Answer, Script, StandIn, html, in_turn, says

TOKEN = "ey.secret.word"
TRES: dict[str, Any] = {
    "total": [],
    "group": {"minutes": [], "active": []},
    "minutes": {"total": [], "per": {"job": []}},
    "per": {"job": [], "node": []},
}
TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
Start = Callable[..., tuple[StandIn, RestSlurmBackend]]


def row(account: str, user: str = "", **changes: Any) -> dict[str, Any]:
    plain = {
        "account": account,
        "user": user,
        "cluster": "test",
        "partition": "",
        "parent_account": "" if user or account == "root" else "root",
        "is_default": bool(user),
        "qos": ["normal"],
        "shares_raw": 1,
        "default": {"qos": ""},
        "max": {"tres": TRES, "jobs": {"per": {"submitted": {"set": False, "infinite": True, "number": 0}}}},
    }
    return {**plain, **changes}


def tree(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"associations": [row("root"), *rows], "errors": [], "warnings": [], **changes}


def error(number: int, words: str) -> dict[str, Any]:
    return {"errors": [{"error_number": number, "error": words, "description": "", "source": "x"}]}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    (tmp_path / "token").write_text(TOKEN)
    with ExitStack() as stack:

        def begin(
            script: Script, certificate: str = "", default_partition: str = "", **access: Any
        ) -> tuple[StandIn, RestSlurmBackend]:
            server = stack.enter_context(StandIn(script, certificate=certificate))
            way = {"url": server.root, "username": "w", "token_file": str(tmp_path / "token")}
            rest = {**way, "api_version": "v0.0.43", **access}
            raw = {"execution_mode": "rest", "cluster_name": "test", "rest_api": rest}
            raw["default_partition"] = default_partition
            made = plugin.connect(parse(raw, "s").settings, BackendContext("0" * 32, tmp_path))
            assert isinstance(made, RestSlurmBackend)
            return server, made

        yield begin


ODD: list[tuple[Answer, type[BackendError], str]] = [
    (html("<title>502 Bad Gateway</title>", 502), BackendUnavailable, "502"),
    (html("<title>Login</title>"), ParseError, "not a JSON object"),
    (says([]), ParseError, "not a JSON object"),
    (says({"errors": []}), ParseError, "no list 'associations'"),
    (says({"associations": [], "errors": []}), ParseError, "the root account is missing"),
    (says({"associations": [row("a", "ann")], "errors": []}), ParseError, "the root account is missing"),
    (says(tree(row("a", "ann"))), ParseError, "its account a is missing"),
    (says(tree(row("a", parent_account="p"))), ParseError, "its account p is missing"),
    (says(tree(row("a", max={}))), ParseError, "'tres' is missing"),
    (says(tree(row("a", cluster="other"))), BackendError, "the cluster 'other'"),
    (says({**tree(), **error(7000, "Unable to connect to database")}), BackendUnavailable, "Check slurmdbd"),
    (says({**tree(), **error(-1, "Unspecified error")}, 500), RequestRefused, "Unspecified error"),
    (says({**tree(), **error(2002, "Access/permission denied")}), RequestDenied, "AdminLevel Operator"),
    (says(error(9003, "Nothing found with query")), ParseError, "no list 'associations'"),
    (html("Unable to find requested URL", 404), RequestDenied, "leave it out"),
    (html("moved", 302), RequestDenied, "redirects are not followed"),
    (says(tree(), Content_Length="9999"), BackendUnavailable, "no answer from"),
    (Answer(hang_up=True), BackendUnavailable, "no answer from"),
]


@pytest.mark.parametrize(("answer", "kind", "sentence"), ODD)
def test_an_odd_answer_is_no_snapshot_and_removes_nothing(
    start: Start, answer: Answer, kind: type[BackendError], sentence: str
) -> None:
    server, backend = start(lambda _: answer)
    with pytest.raises(kind, match=sentence) as raised:
        backend.observe(TREE)
    assert TOKEN not in str(raised.value)
    with pytest.raises(kind):
        backend.apply([RemoveMember(account="a", user="ann"), DeleteAccount(account="a", parent="root")])
    assert {asked.method for asked in server.asked} <= {"GET"}


def test_an_answer_has_a_bound_in_bytes_and_in_seconds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.slurm.rest.backend.ANSWER_BYTES", 20000)
    _, backend = start(lambda _: says(tree(*(row(f"a{n}") for n in range(99)))))
    with pytest.raises(AnswerTooLarge, match="larger than 20000 bytes"):
        backend.observe(TREE)
    _, backend = start(lambda _: Answer(body=b"{}" * 99, trickle="body"), timeout=0.2)
    with pytest.raises(BackendUnavailable, match="no answer from"):
        backend.observe(TREE)


def test_a_refused_token_is_read_again_and_appears_nowhere(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def script(asked: Any) -> Answer:
        given = asked.headers["X-SLURM-USER-TOKEN"]
        return says(tree()) if given == "renewed" else html(f"Authentication failure {given}", 401)

    server, backend = start(script)
    with pytest.raises(RequestDenied, match="refuses the token of w") as raised:
        backend.observe(TREE)
    assert "token_file" in str(raised.value) and raised.value.of_host
    assert len(server.asked) == 1  # the file still holds the token that was refused
    (tmp_path / "token").write_text("SLURM_JWT=renewed\n")
    assert set(backend.observe(TREE).accounts) == {"root"}
    assert {asked.headers["X-SLURM-USER-NAME"] for asked in server.asked} == {"w"}
    for secret in (TOKEN, "renewed"):
        assert secret not in f"{raised.value}{caplog.text}{backend.commands([])}"


@pytest.mark.parametrize(
    ("of_slurmctld", "kind"),
    [(says({"errors": []}, 511), RequestDenied), (says({"errors": []}, 504), BackendUnavailable)],
)
def test_slurmdbd_refuses_a_token_as_if_it_was_away(
    start: Start, of_slurmctld: Answer, kind: type[BackendError]
) -> None:
    """What the real one answers (24.11 to 26.05)."""
    away = says(error(7000, "Unable to connect to database"), 502)
    server, backend = start(lambda asked: of_slurmctld if "/partitions/" in asked.target else away)
    asked = []
    for _ in range(2):
        with pytest.raises(kind):
            backend.observe(TREE)
        asked.append(sum("/partitions/" in each.target for each in server.asked))
    # Within a pass slurmctld says once that the token is good.
    assert asked[0] > 0
    assert (asked[1] == asked[0]) == (kind is BackendUnavailable)


def test_a_certificate_that_is_not_known_is_refused(start: Start, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, LOOPBACK)
    both = tmp_path / "both.pem"
    both.write_bytes((tmp_path / "key.pem").read_bytes() + certificate.read_bytes())
    server, backend = start(lambda _: says(tree()), str(both))
    with pytest.raises(BackendUnavailable, match="certificate verify failed"):
        backend.observe(TREE)
    assert server.asked == []


def test_a_row_is_written_whole_and_without_what_it_inherits(start: Start) -> None:
    minutes = [{"type": "cpu", "name": "", "id": 1, "count": 5}, {"type": "gres", "name": "gpu", "count": 9}]
    above = {**TRES, "per": {"job": [{"type": "cpu", "name": "", "count": 64}], "node": []}}
    own = {**above, "total": minutes[:1], "group": {"minutes": minutes, "active": []}}
    jobs = row("root")["max"]["jobs"]
    rows = tree(row("a", max={"tres": own, "jobs": jobs}, qos=["normal"]))
    rows["associations"][0] = row("root", max={"tres": above, "jobs": jobs})
    tres = {"TRES": [{"type": "cpu", "name": ""}, {"type": "gres", "name": "gpu"}], "errors": []}

    def script(asked: Any) -> Answer:
        return says(tres) if "/tres/" in asked.target else says(rows if asked.method == "GET" else {})

    server, backend = start(script)
    (outcome,) = backend.apply([SetLimits(account="a", after=(("cpu", 7), ("gres/gpu", -1)))])
    assert outcome.done
    assert TOKEN not in "".join(outcome.commands)
    (written,) = [asked for asked in server.asked if asked.method == "POST"]
    assert b'"cluster": "test"' in written.body
    assert written.body.replace(b" ", b"") == (
        b'{"associations":[{"account":"a","cluster":"test","user":"","qos":[],"max":{"tres":{'
        b'"total":[{"type":"cpu","name":"","count":5}],'
        b'"group":{"minutes":[{"type":"cpu","name":"","count":7}]}}}}]}'
    )


def named(server: StandIn) -> list[str]:
    """What was asked for by name, in order; empty for all associations."""
    return [",".join(text for key, text in asked.query if key != "cluster") for asked in server.asked]


CAME = {
    "somebody": ({"associations": [], "errors": []}, tree(row("a"), row("a", "ann"))),
    "an account": (tree(row("b", parent_account="a")), tree(row("a"), row("b", parent_account="a"))),
}


@pytest.mark.parametrize("what", CAME)
def test_right_before_a_deletion_it_is_seen_who_came_meanwhile(start: Start, what: str) -> None:
    server, backend = start(in_turn(*map(says, (tree(row("a")), *CAME[what]))))
    (outcome,) = backend.apply([DeleteAccount(account="a", parent="root")])
    assert isinstance(outcome.error, NotEmpty)
    assert {asked.method for asked in server.asked} == {"GET"}
    assert named(server) == ["a,root", "a", "a,root" if what == "somebody" else "a,b,root"]


def test_accounts_are_read_with_those_above_them_now(start: Start) -> None:
    moved = row("a", parent_account="p", qos=["fast"])
    rows = [tree(row("a")), tree(moved), tree(moved, row("p", qos=["fast"]))]
    server, backend = start(in_turn(*map(says, rows)))
    before = backend.observe(TREE)
    look = replace(TREE, reread=Reread(before, frozenset({"a"}), frozenset()))
    for _ in range(2):
        assert backend.observe(look).accounts["a"] == Account("a", parent="p")
    assert named(server) == ["", "a,root", "a,p,root", "a,p,root"]


def test_many_accounts_are_read_some_at_a_time_and_more_with_the_whole_tree(start: Start) -> None:
    server, backend = start(lambda _: says(tree()))
    for number in (150, 501):
        accounts = frozenset(f"a{each}" for each in range(number))
        backend.observe(replace(TREE, reread=Reread(Snapshot("test"), accounts, frozenset())))
    assert [len(names.split(",")) for names in named(server) if names] == [100, 51]
    assert named(server)[-1] == ""


REFUSALS: list[tuple[Answer, type[BackendError]]] = [
    (says(error(7005, "Job(s) active, cancel job(s) before remove"), 500), JobsStillActive),
    (says(error(7009, "You can not remove the default account of a user")), RequestRefused),
    (Answer(hang_up=True), BackendUnavailable),
    (Answer(status=304, body=b""), type(None)),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("answer", "kind"), REFUSALS)
def test_a_refused_change_is_the_outcome_of_its_action_alone(
    start: Start, answer: Answer, kind: type[BackendError]
) -> None:
    rows = says(tree(row("a"), row("a", "ann"), row("b"), row("b", "bob")))
    _, backend = start(lambda asked: rows if asked.method == "GET" else answer)
    leavers = [RemoveMember(account="a", user="ann"), RemoveMember(account="b", user="bob")]
    outcomes = backend.apply(leavers)
    assert [outcome.action for outcome in outcomes] == leavers
    assert {type(outcome.error) for outcome in outcomes} == {kind}


def described(*versions: str) -> dict[str, Any]:
    paths = {f"/slurmdb/{version}/{path}/": {} for version in versions for path in ("associations", "tres")}
    return {"openapi": "3.1.0", "paths": {"/slurm/v0.0.39/jobs/": {}, **paths}}


def test_the_newest_version_that_both_know_is_asked_for_once(start: Start) -> None:
    served = described("v0.0.9", "v0.0.44", "v0.0.42", "v0.0.45", "v0.0.46")
    server, backend = start(
        lambda asked: says(served if asked.target == "/openapi/v3" else tree()), api_version=""
    )
    backend.observe(TREE)
    backend.observe(TREE)
    targets = [asked.target.partition("?")[0] for asked in server.asked]
    assert targets == ["/openapi/v3", *["/slurmdb/v0.0.45/associations/"] * 2]
    assert backend.executed == {"read": 3}


def test_the_version_is_asked_for_again_when_slurmrestd_is_another_release(start: Start) -> None:
    served = ["v0.0.41"]

    def script(asked: Any) -> Answer:
        if asked.target == "/openapi/v3":
            return says(described(*served))
        return says(tree()) if served[0] in asked.target else html("Unable to find requested URL", 404)

    _, backend = start(script, api_version="")
    backend.observe(TREE)
    served[:] = ["v0.0.45"]
    with pytest.raises(RequestDenied, match=r"another version than v0\.0\.41"):
        backend.observe(TREE)
    assert "root" in backend.observe(TREE).accounts


NO_VERSION: list[tuple[Answer, type[BackendError], str]] = [
    (says(described("v0.0.39")), RequestDenied, "serves v0.0.39; the agent knows v0.0.40 to v0.0.45. Use"),
    (
        says(described("v0.0.47", "v0.0.46")),
        RequestDenied,
        "serves v0.0.46, v0.0.47; .* rest_api.api_version",
    ),
    (says(described()), RequestDenied, "serves no version of slurmdbd's addresses"),
    (says({"paths": ["x"]}), RequestDenied, "serves no version"),
    (html("Login", 200), ParseError, "not a JSON object"),
    (html("Authentication failure", 401), RequestDenied, "refuses the token of w"),
    (Answer(hang_up=True), BackendUnavailable, "no answer from"),
]


@pytest.mark.parametrize(("answer", "kind", "sentence"), NO_VERSION)
def test_where_no_version_is_known_nothing_else_is_asked(
    start: Start, answer: Answer, kind: type[BackendError], sentence: str
) -> None:
    server, backend = start(lambda _: answer, api_version="")
    with pytest.raises(kind, match=sentence):
        backend.observe(TREE)
    assert {asked.target for asked in server.asked} == {"/openapi/v3"}


def test_no_read_is_kept_for_another_cluster(start: Start) -> None:
    server, backend = start(in_turn(says(tree())))
    backend.observe(TREE)
    assert server.asked[0].query == [("cluster", "test")]
    assert server.asked[0].target.startswith("/slurmdb/v0.0.43/associations/")


def test_who_can_submit_in_the_default_account_is_looked_at_here_too(start: Start) -> None:
    answers = [tree(row("a"), row("a", "ann")), tree(row("a"), row("root", "ann", is_default=False))]
    _, backend = start(in_turn(*map(says, answers)))
    look = backend.checks()["default account"]
    first, then = look(), look()
    assert isinstance(first, Check) and isinstance(then, Check)
    assert (first.state, then.state) == (CheckState.OK, CheckState.WARNING)
    assert then.found.startswith("ann (1 in all) can submit in root")
