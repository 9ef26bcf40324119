# SPDX-License-Identifier: MIT
"""Provision what goes with accounts, for those who do not walk through lists of modes yet."""

# Until passes are lists.

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from agent.core.actions import Action
from agent.core.model import OfferingFacts, Snapshot
from agent.plan.departures import Departure
from agent.plan.groups import DesiredGroups
from agent.plan.provider_groups import DirectoryNames
from agent.run import engine
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep, NamedPeople, PeopleLeaving
from agent.run.people.departures import Departures
from agent.run.people.groups import Groups
from agent.run.people.homes import Homes
from agent.run.people.project_directories import Directories
from agent.run.people.provider_groups import ProjectGroups
from agent.run.people.usernames import Usernames
from agent.run.waldur_facts import MembershipFacts


def name_people(run: Pass, facts: MembershipFacts) -> NamedPeople:
    """Give names to people who have none yet; `facts` with the cluster."""
    run.leave(facts)
    engine.walk(run, [Usernames])
    return run.result(NamedPeople) or NamedPeople(facts.users)


def end_accounts(run: Pass, leaving: Sequence[Departure], facts: OfferingFacts, seen: Snapshot) -> None:
    """End the accounts at the offering of people who are in none on the cluster any more; `seen`: that cluster."""
    run.leave(PeopleLeaving(leaving, facts, seen))
    engine.walk(run, [Departures])


def provide_project_groups(run: Pass, names: DirectoryNames) -> None:
    """Make the groups that Waldur has for projects in the site's directory."""
    run.leave(names)
    engine.walk(run, [ProjectGroups])


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
    run.leave(AccountsInStep(desired, frozenset(users), is_whole))
    engine.walk(run, [Groups])
    run.shown = None if shown is None else frozenset(shown)
    engine.walk(run, [Directories, Homes])
    run.shown = None
