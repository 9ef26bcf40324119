# SPDX-License-Identifier: MIT
"""`approve` and `pause`: what an operator sees of a plan that waits, and how it is released."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.state.store import reading, writing
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN, Ended, OperatorSite
from tests.agent.state.obstacles import block

RUN = ("run", "order_process", "--once")


def test_what_waits_is_listed_with_its_reason_and_its_actions(
    command: Command, waiting: tuple[str, str]
) -> None:
    config, plan = waiting
    said = command("approve", "-c", config)
    first, reason, how, *actions = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert first.startswith(f"plan {plan[:12]}  Test SLURM, order_process, cluster demo, held for 0 min")
    assert "2 accounts would be deleted or emptied at once" in reason
    assert how.endswith(f"release: approve {plan[:12]}")
    assert any(line.strip().startswith("delete account a_one") for line in actions)


def test_an_approved_plan_is_carried_out_by_the_next_pass(
    site: OperatorSite, command: Command, waiting: tuple[str, str]
) -> None:
    config, plan = waiting
    said = command("approve", plan[:6], "--for", "30m", "-c", config)
    assert said.code == 0
    assert said.out.startswith(f"plan {plan[:12]} is approved until 20")
    assert "approved by" in command("approve", "-c", config).out
    report = command(*RUN, "--json", "-c", config).document()
    assert report["orders"] == {"done": 2}
    assert command("approve", "-c", config).out == "no plan is held\n"
    journal = command("audit", "-c", config).out
    assert f"approved plan {plan[:12]}" in journal
    assert "delete account a_one" in journal


def test_an_approval_can_be_taken_back(command: Command, waiting: tuple[str, str]) -> None:
    config, plan = waiting
    command("approve", plan, "-c", config)
    said = command("approve", plan, "--revoke", "-c", config)
    assert (said.code, said.out.split(" is ")[0]) == (0, f"plan {plan[:12]}")
    assert command(*RUN, "--json", "-c", config).document()["orders"] == {"waiting": 2}
    again = command("approve", plan, "--revoke", "-c", config)
    assert (again.code, again.err) == (1, f"error: plan {plan} is not approved\n")


def test_no_approval_is_taken_back_by_the_beginning_of_two(command: Command, held: tuple[str, str]) -> None:
    config, plan = held
    command("approve", plan, "-c", config)
    other = f"{plan[:6]}{'1' if plan[6] == '0' else '0'}{plan[7:]}"
    state = Path(config).parent / "state"
    with writing(state) as db:
        db.run(
            "INSERT INTO approvals (offering, mode, plan, by, approved, expires, keys, begun, figures) "
            "SELECT offering, mode, ?, by, approved, expires, keys, begun, figures FROM approvals",
            other,
        )
    said = command("approve", plan[:6], "--revoke", "-c", config)
    assert (said.code, "could be several approved plans" in said.err) == (2, True)
    with reading(state) as db:
        assert {row["plan"] for row in db.rows("SELECT plan FROM approvals")} == {plan, other}


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("feedfeed",), 1, "plan feedfeed is not held; held are: "),
        (("x", "--for", "soon"), 2, "'soon' is no duration; write 30m, 24h or 2d"),
        (("x", "--for", "0h"), 2, "is no duration"),
        (("--revoke",), 2, "name the plan whose approval is to be revoked"),
    ],
)
def test_what_cannot_be_approved(
    command: Command, held: tuple[str, str], words: tuple[str, ...], code: int, sentence: str
) -> None:
    said = command("approve", *words, "-c", held[0])
    assert said.code == code
    assert sentence in said.err


def test_plan_shows_what_would_wait(command: Command, waiting: tuple[str, str]) -> None:
    config, plan = waiting
    text = command("plan", "order_process", "-c", config).out
    assert f"held: plan {plan[:12]} (cluster demo): 2 accounts would be" in text
    (offering,) = command("plan", "order_process", "--json", "-c", config).document()["offerings"]
    assert [held["id"] for held in offering["held"]] == [plan]
    assert offering["actions"] == []
    printed = command("plan", "order_process", "--commands", "--exit-code", "-c", config)
    assert (printed.code, printed.out) == (0, "# Test SLURM\nno commands\n"), "nothing of it would be run"


def test_a_pause_stops_the_passes_of_one_offering_until_it_is_lifted(
    site: OperatorSite, command: Command
) -> None:
    site.place("one")
    config = site.configure()
    offering = site.waldur.seed.offering_uuid
    before = (site.orders_and_resources(), site.cluster())
    said = command("pause", offering, "--reason", "new switch", "-c", config)
    assert (said.code, said.out) == (
        0,
        f"Test SLURM is paused; `pause {offering} --off` ends the pause\n",
    )
    assert command(*RUN, "--json", "-c", config).document()["orders"] == {"waiting": 1}
    assert (site.orders_and_resources(), site.cluster()) == before
    assert "(new switch)" in command("status", "-c", config).out
    assert command("pause", offering, "--off", "-c", config).out == "Test SLURM goes on\n"
    assert command(*RUN, "--json", "-c", config).document()["orders"] == {"done": 1}


def test_after_a_pause_what_waited_for_an_event_is_queued_or_a_warning_is_printed(
    site: OperatorSite, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "redis://127.0.0.1:1/0")
    offering = site.waldur.seed.offering_uuid
    for events in (False, True):
        config = site.configure(stomp_enabled=events)
        command("pause", offering, "-c", config)
        said = command("pause", offering, "--off", "-c", config)
        assert (said.code, said.out) == (0, "Test SLURM goes on\n")
        assert ("no pass is queued, so it waits for the next full one" in said.err) is events


def refused(said: Ended, code: int, words: str) -> None:
    assert said.code == code
    assert words in said.err


def test_a_pause_needs_an_offering_that_is_configured(site: OperatorSite, command: Command) -> None:
    refused(command("pause", "-c", site.configure()), 2, "Missing argument 'OFFERING'")
    both = ("pause", site.waldur.seed.offering_uuid, "--off", "--for", "2h")
    refused(
        command(*both, "-c", site.configure()),
        2,
        "--off ends a pause, and --for says how long a new one lasts",
    )
    refused(command("pause", UNKNOWN, "-c", site.configure()), 2, f"offering {UNKNOWN} is not in")


def test_a_pause_that_cannot_be_written_is_an_error(site: OperatorSite, command: Command) -> None:
    """An operator who believes that an offering is paused must be right."""
    config = site.configure()
    block(Path(config).parent / "state")
    refused(command("pause", site.waldur.seed.offering_uuid, "-c", config), 1, "nothing is changed")
