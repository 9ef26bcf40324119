# SPDX-License-Identifier: MIT
"""`run order_process --once`: what it does, what it prints, how it ends, and what it says when something is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rig.processes import free_ports
from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN, OperatorSite, run_program

RUN = ("run", "order_process", "--once")
KEYS = {"offerings", "orders", "resources", "actions", "commands", "requests", "failures", "seconds"}


def test_an_order_is_fulfilled_and_counted(site: OperatorSite) -> None:
    """As an operator starts it: JSON on stdout and nothing else, the log on stderr. At DEBUG every library talks."""
    order = site.place("First light")
    refused = site.place("Too much", cpu="lots")
    site.waldur.requests.reset()
    said = run_program(
        *RUN, "--json", "-c", site.configure(), env={"WALDUR_SITE_AGENT_LOG_LEVEL": "DEBUG"}, is_real=True
    )
    printed = said.document()
    assert said.code == 0
    assert set(printed) == KEYS
    assert printed["orders"] == {"done": 1, "failed": 1}
    assert printed["actions"]["create account"] == 3
    assert printed["actions"]["add member"] == 2
    assert printed["failures"] == 0
    assert printed["seconds"] > 0
    assert set(printed["commands"]) == {"read", "write"}
    (offering,) = printed["offerings"]
    by_order = {item["order"]: item["result"] for item in offering["orders"]}
    assert by_order == {order: "done", refused: "failed"}
    assert sum(printed["requests"].values()) == site.waldur.requests.count()
    assert {line["level"] for line in said.log()} == {"debug", "info", "warning"}
    assert said.sentences() == []
    assert site.waldur.token() not in said.out + said.err
    assert '"a_first-light"' in site.cluster()
    assert (
        site.waldur.order(refused).error_message == "limit of cpu is 'lots': a number of 0 or more is needed"
    )


def test_the_requests_are_counted_by_what_they_ask(site: OperatorSite, command: Command) -> None:
    """Method and path, without uuids: the same kinds that the server has seen, repeats included."""
    site.waldur.inject(Fault(method="GET", path="marketplace-orders", status=503))
    site.waldur.requests.reset()
    said = command(*RUN, "--json", "-c", site.configure())
    seen = Counter({f"{e.method} /api/{e.endpoint}": 0 for e in site.waldur.requests.entries()})
    seen.update(f"{e.method} /api/{e.endpoint}" for e in site.waldur.requests.entries())
    assert said.document()["requests"] == dict(sorted(seen.items()))
    assert seen["GET /api/marketplace-orders/"] == 2


def test_the_table_for_people(site: OperatorSite, command: Command) -> None:
    order = site.place("Too much", cpu="lots")
    said = command(*RUN, "-c", site.configure())
    title, _, heads, _, row, _, last = said.out.splitlines()
    assert said.code == 0, "an order that is wrong in itself needs no operator"
    assert title.strip() == "Test SLURM"
    assert heads.strip("┃").split("┃")[0].strip() == "order"
    assert [word.strip() for word in row.strip("│").split("│")] == [
        order, "Create", "", "failed", "limit of cpu is 'lots': a number of 0 or more is needed",
    ]  # fmt: skip
    assert last.startswith("Test SLURM: 1 order, ")


def test_nothing_to_do(site: OperatorSite, command: Command) -> None:
    said = command(*RUN, "-c", site.configure())
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Test SLURM: 0 orders, ")


WRONG: dict[str, tuple[Callable[[OperatorSite], str], str]] = {
    "a wrong token": (
        lambda site: site.configure(waldur_api_token="wrong-token-0123456789"),
        "Waldur answered 401: Invalid token. The token is wrong, expired, or its user inactive: check "
        "waldur_api_token",
    ),
    "a token of another user": (
        lambda site: site.configure(waldur_api_token=site.waldur.token("consumer")),
        "404: No Offering matches the given query. Check waldur_offering_uuid, and that the token's user",
    ),
    "an unknown offering": (
        lambda site: site.configure(waldur_offering_uuid=UNKNOWN),
        f"GET marketplace-provider-offerings/{UNKNOWN}/: Waldur answered 404",
    ),
    "an address without its end": (
        lambda site: site.configure(waldur_api_url=site.waldur.root_url),
        "is waldur_api_url right, ending in /api/?",
    ),
    "a token with a quote in it": (
        lambda site: site.configure(waldur_api_token="\u201cabcdef\u201d"),
        "waldur_api_token for",
    ),
    "a backend that is not installed": (
        lambda site: site.configure(order_processing_backend="moabb", backend_type="moabb"),
        "backend 'moabb' (did you mean 'moab'?) is not installed; installed are: ",
    ),
}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (words, what)
        for words in (RUN, ("plan", "order_process"), ("load-components",))
        for what in WRONG
        # Components need no backend.
        if (words[0], what) != ("load-components", "a backend that is not installed")
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_what_is_wrong_is_printed_with_the_offering(
    site: OperatorSite, command: Command, words: tuple[str, ...], what: str
) -> None:
    configure, sentence = WRONG[what]
    said = command(*words, "-c", configure(site))
    assert said.code == 1
    (complaint,) = said.sentences()
    assert complaint.startswith("error: Test SLURM: ")
    assert sentence in complaint
    assert said.out == ""
    assert "wrong-token-0123456789" not in said.err
    assert "Traceback" not in said.err


def test_a_waldur_that_is_away(site: OperatorSite, command: Command) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/api/"
    said = command(*RUN, "-c", site.configure(waldur_api_url=url))
    assert said.code == 1
    (complaint,) = said.sentences()
    assert complaint.startswith(
        f"error: Test SLURM: GET marketplace-orders/: no answer from {url}: Failed to"
    )
    assert complaint.endswith("Connection refused")
    assert [line["event"].rpartition(";")[2] for line in said.log()] == [
        f" asked again, attempt {number}" for number in (2, 3, 4)
    ]


@pytest.mark.parametrize("words", [RUN, ("plan", "order_process"), ("load-components",)], ids=lambda w: w[0])
def test_errors_stand_in_the_json_too(site: OperatorSite, command: Command, words: tuple[str, ...]) -> None:
    said = command(*words, "--json", "-c", site.configure(waldur_api_token="wrong-token-0123456789"))
    (offering,) = said.document()["offerings"]
    assert said.code == 1
    assert "Invalid token" in offering["error"]
    assert offering["offering"] == site.waldur.seed.offering_uuid
    assert offering["name"] == "Test SLURM"


def test_a_right_that_is_lacking_leaves_the_order_for_later(site: OperatorSite, command: Command) -> None:
    order = site.place()
    site.waldur.people.deny("agent", "ORDER.APPROVE")
    said = command(*RUN, "--json", "-c", site.configure())
    printed = said.document()
    assert said.code == 1
    assert (printed["orders"], printed["failures"]) == ({"stuck": 1}, 1)
    assert "You do not have permission to perform this action. The token's user lacks the right" in said.out
    assert site.waldur.order(order).state.value == "pending-provider"
    assert any(line["level"] == "error" and order in line["event"] for line in said.log())


def test_sacctmgr_that_is_missing(site: OperatorSite, command: Command) -> None:
    order = site.place()
    said = command(*RUN, "-c", site.configure(backend={"slurm_bin_path": "/nowhere"}))
    assert said.code == 1
    assert said.sentences() == [
        "error: Test SLURM: cannot start `/nowhere/sacctmgr`: No such file or directory. Check slurm_bin_path or "
        "command_prefix, and that this host is the head node."
    ]
    assert site.waldur.order(order).state.value == "pending-provider"


@pytest.mark.parametrize("words", [RUN, ("plan", "order_process")], ids=lambda w: w[0])
def test_one_broken_offering_does_not_stop_the_others(
    site: OperatorSite, command: Command, words: tuple[str, ...]
) -> None:
    order = site.place("Too much", cpu="lots")
    file = site.configure_several(
        {
            "name": "No backend",
            "order_processing_backend": "moabb",
            "waldur_offering_uuid": UNKNOWN[:-1] + "2",
        },
        {"name": "No rights", "waldur_api_token": "wrong", "waldur_offering_uuid": UNKNOWN},
        {"name": "Good"},
    )
    said = command(*words, "-c", file)
    assert said.code == 1
    assert [line.split(":")[1] for line in said.sentences()] == [" No backend", " No rights"]
    assert "Good" in said.out
    assert order in said.out
    assert (site.waldur.order(order).state.value == "erred") == (words is RUN)


def test_a_backend_that_is_not_installed_stops_its_own_mode_only(
    site: OperatorSite, command: Command
) -> None:
    order = site.place("Too much", cpu="lots")
    said = command(*RUN, "-c", site.configure(membership_sync_backend="moabb"))
    assert said.code == 0
    assert site.waldur.order(order).state.value == "erred"
    (warning,) = (line["event"] for line in said.log() if line["logger"] == "agent.cli.settings")
    assert "backend 'moabb' (did you mean 'moab'?) is not installed" in warning
    assert warning.endswith("; until then membership_sync is off for this offering")


@pytest.mark.parametrize(("words", "code"), [(RUN, 2), (("plan", "order_process"), 0)], ids=["run", "plan"])
def test_an_offering_without_a_backend_for_the_mode(
    site: OperatorSite, command: Command, words: tuple[str, ...], code: int
) -> None:
    """A pass that serves no offering has failed: a timer that ran it would hide that."""
    file = site.configure(order_processing_backend="")
    said = command(*words, "-c", file)
    assert (said.code, said.out) == (code, "")
    assert "no offering here has a backend for order_process: is its key in the configuration?" in said.err
    assert command(*words, "-c", file, "--json").document()["offerings"] == []


def test_brackets_in_waldurs_words_are_no_markup(site: OperatorSite, command: Command) -> None:
    """`[/x]` in a message ended the command with a traceback of the table's library."""
    site.place()
    refusal = '{"backend_id": ["Must match [a-z]+ and not [/red]."]}'
    site.waldur.inject(
        Fault(path="set_backend_id", status=400, body=refusal, content_type="application/json", times=None)
    )
    said = command(*RUN, "-c", site.configure(name="Site [/b] [x]"))
    assert said.code == 0, said.err
    assert "Must match [a-z]+ and not [/red]." in said.out
    assert "Site [/b] [x]" in said.out


def oidc_keys(site: OperatorSite, **more: Any) -> dict[str, Any]:
    return {
        "waldur_api_token": "",
        "oidc_token_url": f"{site.waldur.root_url}/oidc/token",
        "oidc_client_id": "agent",
        "oidc_client_secret": "secret",
        **more,
    }


def test_oidc_credentials_work_in_every_command(site: OperatorSite, command: Command) -> None:
    order = site.place("Too much", cpu="lots")
    file = site.configure(**oidc_keys(site))
    assert f"approve order {order}" in command("plan", "order_process", "-c", file).out
    assert command("load-components", "-c", file).code == 0
    assert command(*RUN, "-c", file, "--offering", site.waldur.seed.offering_uuid).code == 0
    assert site.waldur.order(order).state.value == "erred"


def test_wrong_oidc_credentials_are_printed(site: OperatorSite, command: Command) -> None:
    said = command(*RUN, "-c", site.configure(**oidc_keys(site, oidc_client_secret="hush-hush")))
    assert said.code == 1
    (complaint,) = said.sentences()
    assert "answered 401: error: invalid_client. Check oidc_token_url, oidc_client_id (agent)" in complaint
    assert "hush-hush" not in said.err


def test_an_offering_may_be_named_with_dashes(site: OperatorSite, command: Command) -> None:
    uuid = site.waldur.seed.offering_uuid
    dashed = f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}".upper()
    assert command(*RUN, "-c", site.configure(), "--offering", dashed).code == 0
