# SPDX-License-Identifier: MIT
"""Leave in the state what a pass saw of allocations and people, for the console's pages."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.account_names import fold
from agent.core.errors import SiteAgentError
from agent.core.model import OfferingUser, Resource, Snapshot
from agent.core.overview import SeenAllocation, SeenPerson, search_text
from agent.plan.membership import ResourcePlan
from agent.run.engine import Work
from agent.run.membership.planning import PlannedSync
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE

PROBLEM_LETTERS = 500


def write(work: Work[PlannedSync], seen: Snapshot | None, errors: Mapping[str, SiteAgentError]) -> None:
    """Write down what differs from what earlier passes saw: of people, after a partial pass, those of its allocations.
    Where the cluster could not be read again, nothing.
    """
    if seen is None:
        return
    site, plan = work.site, work.plan
    waldur = plan.facts.waldur
    # An empty listing is believed by the gate only, an hour later.
    is_whole = plan.is_whole and bool(waldur.resources)
    allocations = {each.case.resource.uuid: _allocation(each, seen, errors) for each in plan.plans}
    in_progress = {each.uuid: _of_resource(each, each.backend_id) for each in waldur.in_progress}
    where = (site.state_dir, site.offering.uuid)
    SEEN_ALLOCATIONS.replace(*where, {**in_progress, **allocations}, are_all=is_whole)
    named = {name for each in allocations.values() for name in (*each.members, *each.missing)}
    users = [each for each in waldur.users if plan.is_whole or fold(each.cluster_name) in named]
    SEEN_PEOPLE.replace(*where, dict(map(_person, users)), are_all=is_whole)


def _allocation(plan: ResourcePlan, seen: Snapshot, errors: Mapping[str, SiteAgentError]) -> SeenAllocation:
    resource, wanted = plan.case.resource, plan.case.members
    inside, error = seen.users_of(plan.account), errors.get(resource.uuid)
    standing = seen.accounts.get(plan.account)
    problem = plan.skipped or (str(error) if error else "") or (str(plan.refusal) if plan.refusal else "")
    return _of_resource(
        resource,
        plan.account,
        cluster_limits=dict(sorted(standing.limits.items())) if standing else {},
        members=tuple(sorted(inside)),
        missing=() if plan.skipped else tuple(sorted(wanted.wanted - inside)),
        surplus=() if plan.skipped else tuple(sorted(wanted.stale(inside) - plan.unmanaged)),
        problem=problem[:PROBLEM_LETTERS],
    )


def _of_resource(  # noqa: PLR0913  what the cluster has of it
    resource: Resource,
    account: str,
    *,
    cluster_limits: dict[str, int] | None = None,
    members: tuple[str, ...] = (),
    missing: tuple[str, ...] = (),
    surplus: tuple[str, ...] = (),
    problem: str = "",
) -> SeenAllocation:
    words = [str(resource.state)]
    words += ["paused"] * resource.paused + ["downscaled"] * resource.downscaled
    words += ["closed to members"] * resource.restrict_member_access
    project, customer = resource.project_name or resource.project_slug, resource.customer_name
    return SeenAllocation(
        search=search_text(resource.name, account, project, customer, resource.uuid, *members, *missing),
        name=resource.name,
        account=account,
        project=project,
        customer=customer,
        state=", ".join(words),
        limits={name: str(limit) for name, limit in sorted(resource.limits.items())},
        cluster_limits=cluster_limits or {},
        members=members,
        missing=missing,
        surplus=surplus,
        problem=problem,
    )


def _person(user: OfferingUser) -> tuple[str, SeenPerson]:
    """Return a person by the name on the cluster, by which accounts have them; by uuid before there is one."""
    name, username = f"{user.first_name} {user.last_name}".strip(), fold(user.cluster_name)
    seen = SeenPerson(
        search=search_text(name, username, user.waldur_username, user.uuid, user.user_uuid),
        uuid=user.key,
        username=username,
        name=name,
        login=user.waldur_username,
        state=user.state,
        is_restricted=user.is_restricted,
    )
    return username or user.key, seen
