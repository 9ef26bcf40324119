# SPDX-License-Identifier: MIT
"""Report to Waldur how far each member of a resource is on the cluster, where the offering wants that and something of
it has changed since the last report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agent.core.actions import Action
from agent.core.errors import WaldurError
from agent.core.model import Snapshot
from agent.core.waldur_actions import ReportMembers
from agent.plan import member_statuses as planner
from agent.plan import posix_accounts
from agent.run.engine import Work
from agent.run.membership.planning import PlannedSync
from agent.run.site import Site
from agent.state.hints import REPORTED_MEMBERS

OPTION = "enable_membership_sync_status"

# What was reported to Waldur: resource uuid -> person's uuid -> text.
Reported = Mapping[str, dict[str, str]]
# Why the cluster does not take a user, by account and name.
Refused = Mapping[tuple[str, str], str]


def is_wanted(site: Site, plan: PlannedSync) -> bool:
    """Return whether the offering shows the members' statuses, and its server can."""
    options = plan.facts.waldur.offering.plugin_options
    return options.get(OPTION) is True and site.client.if_supported(ReportMembers.feature)


def news(site: Site, plan: PlannedSync, seen: Snapshot, refused: Refused) -> Sequence[ReportMembers]:
    """Return what Waldur does not know yet of the members. Nothing, where it is unknown what it knows."""
    if not is_wanted(site, plan):
        return ()
    reported = REPORTED_MEMBERS.all(site.state_dir, site.offering.uuid)
    return () if reported is None else _news(plan, seen, refused, reported)


def _news(plan: PlannedSync, seen: Snapshot, refused: Refused, reported: Reported) -> Sequence[ReportMembers]:
    waldur = plan.facts.waldur
    users = {user.user_uuid: user for user in posix_accounts.by_directory_name(waldur.users)}
    found = []
    for each in plan.plans:
        resource, team = each.case.resource, waldur.teams.get(each.case.resource.uuid, ())
        if each.skipped or isinstance(team, WaldurError):
            continue
        own = {name: why for (account, name), why in refused.items() if account == each.account}
        known = reported.get(resource.uuid, {})
        changed = tuple(
            status
            for status in planner.statuses(resource, team, users, seen.users_of(each.account), own)
            if known.get(status.person) != planner.text(status)
        )
        if changed:
            found.append(ReportMembers(resource=resource.uuid, statuses=changed, reason=each.case.reason))
    return found


def report(work: Work[PlannedSync], seen: Snapshot | None, refused: Refused) -> None:
    """Send what Waldur does not know yet, and remember it. What it refuses permanently is not sent again either."""
    site, plan = work.site, work.plan
    if seen is None or not is_wanted(site, plan):
        return
    reported = REPORTED_MEMBERS.all(site.state_dir, site.offering.uuid)
    if reported is None:
        return
    actions = _news(plan, seen, refused, reported)
    failed: Mapping[Action, WaldurError] = work.send(actions)
    if not site.client.if_supported(ReportMembers.feature):
        return
    after = {resource: dict(persons) for resource, persons in reported.items()}
    for action in actions:
        if work.allows(action) and not (action in failed and failed[action].retryable):
            sent = {each.person: planner.text(each) for each in action.statuses}
            after.setdefault(action.resource, {}).update(sent)
    for resource, person in _gone(plan, reported):
        after[resource].pop(person)
    after = {resource: persons for resource, persons in after.items() if persons}
    REPORTED_MEMBERS.change(site.state_dir, site.offering.uuid, reported, after)


def _gone(plan: PlannedSync, reported: Reported) -> Iterator[tuple[str, str]]:
    """Yield the resources and persons of whom nothing more is reported: who comes back is reported again."""
    waldur = plan.facts.waldur
    listed = {resource.uuid for resource in (*waldur.resources, *waldur.in_progress)}
    for resource, persons in reported.items():
        team = waldur.teams.get(resource)
        if resource not in listed:
            left = set(persons) if plan.is_whole and listed else set()
        elif team is None or isinstance(team, WaldurError):
            continue
        else:
            left = persons.keys() - {member.user_uuid for member in team}
        for person in left:
            yield resource, person
