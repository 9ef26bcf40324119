# SPDX-License-Identifier: MIT
"""Print what checks found, for `doctor` and `diagnostics`."""

from __future__ import annotations

from collections.abc import Sequence

from agent.cli.options import number, print_json
from agent.cli.output import echo
from agent.core.checks import Check, CheckState
from agent.run.diagnosis import probes

COLOURS = {
    CheckState.OK: "green",
    CheckState.WARNING: "yellow",
    CheckState.PROBLEM: "red",
    CheckState.UNKNOWN: "cyan",
}


def show(found: Sequence[Check], *, as_json: bool) -> int:
    """Print the checks and return the exit code: 1 where something is a problem."""
    is_failed = probes.failed(found)
    if as_json:
        print_json({"ok": not is_failed, "checks": [check.as_json() for check in found]})
        return int(is_failed)
    about = None
    for check in found:
        if check.about != about:
            about = check.about
            echo(f"# {about or 'this host'}")
        colour = COLOURS[check.state] if check.state is not CheckState.OK else None
        echo(f"{check.state:<8} {check.name}: {check.found}", fg=colour)
        if check.remedy:
            echo(f"{'':<8}   do: {check.remedy}", fg=colour)
    count = {state: sum(check.state is state for check in found) for state in CheckState}
    problems, warnings = count[CheckState.PROBLEM], count[CheckState.WARNING]
    echo(f"{number(len(found), 'check')}: {number(problems, 'problem')}, {number(warnings, 'warning')}")
    return int(is_failed)
