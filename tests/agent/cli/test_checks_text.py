# SPDX-License-Identifier: MIT
"""How `doctor` and `diagnostics` print checks: each when it ends, and one cause once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.cli import checks_text
from agent.core.checks import Check, CheckState, ok, unknown
from agent.core.errors import CommandFailed
from agent.run.diagnosis import probes
from agent.run.diagnosis.probes import Probe


def test_each_check_is_printed_before_the_next_is_looked_at(capfd: pytest.CaptureFixture[str]) -> None:
    """At the end of the pipe, too: what was printed is not kept in a buffer."""

    def checks() -> Iterator[Check]:
        yield ok("first", "is well")
        assert capfd.readouterr().out == "# this host\nok       first: is well\n"
        yield unknown("second", "not looked at")
        yield unknown("third", "not looked at")
        yield ok("fourth", "is well")
        assert "unknown  second, third: not looked at\nok       fourth" in capfd.readouterr().out

    assert checks_text.show(checks(), as_json=False) == 0
    assert capfd.readouterr().out == "4 checks: 0 problems, 0 warnings\n"


def test_what_a_command_said_is_one_problem_for_all_checks_and_offerings() -> None:
    def fails(what: str, stderr: str = "slurmdbd is away") -> Iterator[Check]:
        raise CommandFailed(["sacctmgr", "show", what], returncode=1, stdout="", stderr=stderr)
        yield ok("never", "")

    looks = [
        Probe("tree", lambda: fails("assoc"), "start it", "One"),
        Probe("TRES", lambda: fails("tres"), "start it", "One"),
        Probe("tree", lambda: fails("assoc"), "start it", "Two"),
        Probe("TRES", lambda: fails("tres", "denied"), "ask for rights", "Two"),
    ]
    found = [(each.state, each.found) for each in probes.run(looks)]
    assert found == [
        (CheckState.PROBLEM, "`sacctmgr show assoc` ended with 1: slurmdbd is away"),
        (CheckState.UNKNOWN, "failed as for tree"),
        (CheckState.UNKNOWN, "failed as for tree of One"),
        (CheckState.PROBLEM, "`sacctmgr show tres` ended with 1: denied"),
    ]
