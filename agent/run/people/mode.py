# SPDX-License-Identifier: MIT
"""Provisioning of what goes with accounts: names for new people before a plan, groups and homes after it.

None of it holds the cluster back: a directory or a file system that is away costs its own part of the pass, and
the next one goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agent.core.errors import WaldurError
from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan.groups import DesiredGroups
from agent.run.gate import Pass
from agent.run.people import groups, homes, usernames
from agent.run.people.homes import HomesReport
from agent.run.results import ProvisioningReport


def name_people(
    run: Pass, users: Sequence[OfferingUser], facts: OfferingFacts, snapshot: Snapshot
) -> Sequence[OfferingUser]:
    """Give names to people who have none yet; the users as they are then."""
    settled = usernames.settle(run, users, facts, snapshot=snapshot)
    _tell(run, "usernames", settled)
    return settled.users


def provide(run: Pass, desired: DesiredGroups, users: Iterable[str], *, is_whole: bool) -> None:
    """Make the groups of these accounts as desired, and the homes of these users."""
    _tell(run, "groups", groups.settle(run, desired, is_whole=is_whole))
    report, settled = run.report, homes.settle(run, frozenset(users))
    report.homes = _counted(settled)
    report.home_problems += [f"homes: {problem}" for problem in settled.problems]
    # Who can never have a home here is told once, and is no failure of each pass.
    told = {u: e for u, e in settled.failed.items() if u not in settled.refused or u in settled.news}
    if told:
        user, error = next(iter(told.items()))
        report.home_problems.append(f"homes of {len(told)} users failed, the first of {user}: {error}")


def _tell(run: Pass, what: str, settled: ProvisioningReport) -> None:
    report = run.report
    report.later = report.later or settled.retryable_error
    if settled.error is not None:
        report.problems.append(f"{what}: {settled.error}")
    failed = [outcome for outcome in settled.outcomes if _is_failure(outcome)]
    if failed:
        first = failed[0]
        report.problems.append(
            f"{what}: {len(failed)} of {len(settled.outcomes)} actions failed, the first: "
            f"{first.action.line()}: {first.error}"
        )


def _is_failure(outcome: Outcome) -> bool:
    """Whether an operator should know. 409: the person has moved on meanwhile, the next pass sees where to."""
    error = outcome.error
    return error is not None and not (isinstance(error, WaldurError) and error.status == 409)


def _counted(settled: HomesReport) -> dict[str, int]:
    """As `HomesReport.counted`, with those who can never have a home here apart."""
    counts = {**settled.counted(), "refused": len(settled.refused)}
    counts["failed"] = len(settled.failed) - len(settled.refused)
    return {name: count for name, count in sorted(counts.items()) if count}
