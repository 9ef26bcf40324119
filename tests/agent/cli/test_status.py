# SPDX-License-Identifier: MIT
"""`status`: modes, pauses, held plans and the last passes, from files alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.core.plans import Outcome
from agent.core.waldur_actions import RefreshLastSync
from agent.run.results import PassReport, record
from rig.site import settings_of
from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite

RUN = ("run", "order_process", "--once")
AWAY = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", AWAY)


def test_before_the_first_pass(site: OperatorSite, command: Command) -> None:
    said = command("status", "-c", site.configure())
    assert (said.code, said.err) == (0, "")
    assert said.out == (
        f"Test SLURM ({site.waldur.seed.offering_uuid})\n"
        "  mode: sync\n"
        "  order_process: no pass has ended on this head node yet\n"
        f"queues, workers and retries are not known: the broker {AWAY} does not answer "
        "(Error 111 connecting to 127.0.0.1:1. Connection refused.)\n"
    )


def test_passes_are_listed_newest_first_and_idle_ones_once(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    site.place("one")
    for _ in range(3):
        command(*RUN, "-c", config)
    first, second, *homes, _ = command("status", "-c", config).out.splitlines()[2:]
    assert re.match(r"  order_process: ok \d+ min ago: nothing to do, 0 actions", first)
    assert re.match(r"  order_process: ok \d+ min ago: 1 done, 9 actions", second)
    assert homes == ["    homes wait: 2 for users that this head node does not know yet"]


def test_what_only_names_groups_or_moments_needed_is_printed_by_kind(
    site: OperatorSite, command: Command, tmp_path: Path
) -> None:
    config = site.configure()
    settings = settings_of(Path(config))
    report = PassReport("order_process", settings.offerings[0].uuid, "Test SLURM", in_step=24)
    report.outcomes = [Outcome(RefreshLastSync(resource=str(number))) for number in range(24)]
    report.problems = ["usernames: the directory is away"]
    report.home_problems = ["homes: no helper"]
    record(settings.state_dir, report)
    out = command("status", "-c", config).out
    assert "something failed 0 min ago: 24 in step, 24 actions (24 refresh last sync), 0.0 s" in out
    assert "    usernames: the directory is away\n    homes: no helper\n" in out
    assert (report.failed, PassReport("m", "u", "n", home_problems=["homes: x"]).failed) == (True, False)


def test_a_pass_that_failed_says_why(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    site.waldur.inject(Fault(method="GET", path="orders", status=403, times=None))
    assert command(*RUN, "-c", config).code == 1
    said = command("status", "-c", config)
    assert "order_process: ended by an error 0 min ago" in said.out
    assert "403" in said.out


def test_what_a_mode_skips_is_listed(site: OperatorSite, command: Command) -> None:
    config = site.configure(policy={"mode": "observe"})
    site.place("one")
    command(*RUN, "-c", config)
    out = command("status", "-c", config).out
    assert "  mode: observe\n" in out
    assert "  order_process: 9 actions skipped since 20" in out
    assert "    and 6 more\n" in out


def test_json_has_all_of_it(site: OperatorSite, command: Command) -> None:
    config = site.configure(policy={"paused": True})
    site.place("one")
    command(*RUN, "-c", config)
    document = command("status", "--json", "-c", config).document()
    (offering,) = document["offerings"]
    assert document["broker"]["problem"].startswith(f"the broker {AWAY} does not answer")
    (order,) = offering["stuck_orders"]
    assert (order["result"], order["next_by"]) == ("waiting", "the next pass")
    assert offering["paused"] == "by `paused: true` in the configuration"
    assert offering["skipped"]["order_process"]["count"] == 9
    assert offering["passes"]["order_process"][0]["results"] == {"waiting": 1}


def test_a_stuck_order_is_printed_with_its_age_and_next_try(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    order = site.place("one")
    site.waldur.inject(Fault(method="POST", path="set_backend_id", status=403, times=None))
    for _ in range(2):
        command(*RUN, "-c", config)
    (stuck,) = command("status", "--json", "-c", config).document()["offerings"][0]["stuck_orders"]
    passes = command("status", "--json", "-c", config).document()["offerings"][0]["passes"]["order_process"]
    assert (stuck["uuid"], stuck["result"]) == (order, "stuck")
    # Since the first of the two passes, not the last.
    assert stuck["since"] == passes[1]["ended"] == passes[1]["orders"][0]["since"]
    lines = command("status", "-c", config).out.splitlines()
    at = next(number for number, line in enumerate(lines) if f"order {order}" in line)
    assert re.search(r": stuck for \d+ min: ", lines[at])
    assert "RESOURCE.SET_BACKEND_ID" in lines[at]
    assert re.fullmatch(r"    next try: in \d min, by the next pass", lines[at + 1])
    assert "  order_process: none of the passes that are remembered went well" in lines


def test_an_order_that_is_done_is_stuck_no_more(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    site.place("one")
    site.waldur.inject(Fault(method="POST", path="set_backend_id", status=403, times=1))
    for _ in range(2):
        command(*RUN, "-c", config)
    (found,) = command("status", "--json", "-c", config).document()["offerings"]
    assert found["stuck_orders"] == []
    assert found["modes"]["order_process"]["last_good"] == found["passes"]["order_process"][0]["ended"]


def test_no_broker_and_no_waldur_are_needed(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    site.place("one")
    command(*RUN, "-c", config)
    site.waldur.requests.reset()
    assert command("status", "-c", config).code == 0
    assert site.waldur.requests.count() == 0
