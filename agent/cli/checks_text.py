# SPDX-License-Identifier: MIT
"""Print what checks found, for `doctor` and `diagnostics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

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


def show(checks: Iterable[Check], *, as_json: bool) -> int:
    """Print each check as soon as it comes, and return the exit code: 1 where something is a problem."""
    if as_json:
        found = list(checks)
        is_failed = probes.failed(found)
        print_json({"ok": not is_failed, "checks": [check.as_json() for check in found]})
        return int(is_failed)
    count = Counter[CheckState]()
    about = None
    for check in _merged(_counted(checks, count)):
        if check.about != about:
            about = check.about
            echo(f"# {about or 'this host'}")
        colour = COLOURS[check.state] if check.state is not CheckState.OK else None
        echo(f"{check.state:<8} {check.name}: {check.found}", fg=colour)
        if check.remedy:
            echo(f"{'':<8}   do: {check.remedy}", fg=colour)
    problems, warnings = count[CheckState.PROBLEM], count[CheckState.WARNING]
    echo(f"{number(count.total(), 'check')}: {number(problems, 'problem')}, {number(warnings, 'warning')}")
    return int(problems > 0)


def _counted(checks: Iterable[Check], count: Counter[CheckState]) -> Iterator[Check]:
    for check in checks:
        count[check.state] += 1
        yield check


def _merged(checks: Iterable[Check]) -> Iterator[Check]:
    """Yield the checks, each as soon as it comes. Of those in a row that are unknown for one reason it makes one."""
    unknown: Check | None = None
    for check in checks:
        if unknown and replace(check, name=unknown.name) == unknown:
            unknown = replace(unknown, name=f"{unknown.name}, {check.name}")
            continue
        if unknown:
            yield unknown
        unknown = check if check.state is CheckState.UNKNOWN else None
        if not unknown:
            yield check
    if unknown:
        yield unknown
