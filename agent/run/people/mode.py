# SPDX-License-Identifier: MIT
"""Provision what goes with accounts: usernames for new people before a plan; groups, project directories and homes
after it, and the end of what people have who are to be deleted.

None of it delays the cluster: a directory or a file system that is away costs its own part of the pass, and the next
one goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set

from agent.core.actions import Action
from agent.core.errors import WaldurError
from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups
from agent.plan.provider_groups import DirectoryNames
from agent.run.gate import Pass
from agent.run.people import departures, groups, homes, project_directories, provider_groups, usernames
from agent.run.people.usernames import UsernameReport
from agent.run.results import ProvisioningReport


def name_people(
    run: Pass,
    users: Sequence[OfferingUser],
    facts: OfferingFacts,
    snapshot: Snapshot,
    members: Set[str],
) -> UsernameReport:
    """Give names to people who have none yet; `members` as of `usernames.provision`."""
    named = usernames.provision(run, users, facts, snapshot=snapshot, members=members)
    _add_to_report(run, "usernames", named)
    if named.names_unknown:
        run.report.notes.append(f"nobody leaves an account in this pass: {named.names_unknown}")
    return named


def end_accounts(run: Pass, leaving: Sequence[Departure], facts: OfferingFacts, seen: Snapshot) -> None:
    """End the accounts at the offering of people who are in none on the cluster any more; `seen`: that cluster."""
    _add_to_report(run, "deletion of users", departures.provision(run, leaving, facts, seen))


def provide_project_groups(run: Pass, names: DirectoryNames) -> None:
    """Make the groups that Waldur has for projects in the site's directory, as of `provider_groups.provision`."""
    _add_to_report(run, "project groups", provider_groups.provision(run, names))


def provide(
    run: Pass,
    desired: DesiredGroups,
    users: Iterable[str],
    *,
    is_whole: bool,
    shown: Collection[Action] | None = None,
) -> None:
    """Make the groups of these accounts as desired, their project directories, and the homes of these users.
    `shown`: all that may be done on the head node, where somebody has looked at that.
    """
    _add_to_report(run, "groups", groups.provision(run, desired, is_whole=is_whole))
    accounts = desired.members.keys() - desired.ended
    made = project_directories.provision(run, accounts, is_whole=is_whole, shown=shown)
    _add_to_report(run, "project directories", made)
    report, done = run.report, homes.provision(run, frozenset(users), shown=shown, is_whole=is_whole)
    # As HomesReport counts them, with users apart who can never have a home here.
    counts = {**done.counted(), "refused": len(done.refused)}
    counts["failed"] = len(done.failed) - len(done.refused)
    report.homes = {name: count for name, count in sorted(counts.items()) if count}
    report.home_problems += [f"homes: {problem}" for problem in done.problems]
    # Users who can never have a home here fail the first pass only.
    failed = {u: e for u, e in done.failed.items() if u not in done.refused or u in done.news}
    if failed:
        user, error = next(iter(failed.items()))
        report.home_problems.append(f"homes of {len(failed)} users failed, the first of {user}: {error}")


def _add_to_report(run: Pass, what: str, done: ProvisioningReport) -> None:
    report = run.report
    report.later = report.later or done.retryable_error
    if done.error is not None:
        report.problems.append(f"{what}: {done.error}")
    # 409: the person has moved on meanwhile, the next pass sees where to.
    failed = [
        outcome
        for outcome in done.outcomes
        if outcome.error is not None
        and not (isinstance(outcome.error, WaldurError) and outcome.error.status == 409)
    ]
    if failed:
        first = failed[0]
        report.problems.append(
            f"{what}: {len(failed)} of {len(done.outcomes)} actions failed, the first: "
            f"{first.action.line()}: {first.error}"
        )
