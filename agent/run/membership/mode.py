# SPDX-License-Identifier: MIT
"""Membership: every allocation keeps the members, state, limits and place that Waldur says it has.

observe (`facts`) -> plan (`planning`) -> what each resource goes through (`progress`). Before anybody leaves, Waldur is
asked once more, by each resource's own team: somebody may have joined while the cluster was read, and a fault of the
bulk listing removes nobody either. Only then are the jobs of those accounts read: an idle pass does not pay for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.errors import SiteAgentError, WaldurError
from agent.core.model import OfferingUser, Part, ResourceState, Snapshot
from agent.core.policy import PolicyRules
from agent.plan.policy.gate import Decision
from agent.run import engine, gate
from agent.run.engine import Steps, Work
from agent.run.gate import Pass
from agent.run.membership import facts as waldur_facts
from agent.run.membership import planning
from agent.run.membership.facts import MembershipFacts, Reach
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.membership.progress import REQUESTS, Progress
from agent.run.site import Site
from agent.state import blocked, named_accounts
from agent.waldur import resources
from agent.waldur.client import WaldurClient
from backends.base import BULK_PARTS, Scope

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC

# Gives names to people who have none yet; the users as they are then.
Naming = Callable[[MembershipFacts, Snapshot], Sequence[OfferingUser]]

# The notes of each resource that were told last, for the life of a site's client.
_told: WeakKeyDictionary[WaldurClient, dict[str, tuple[str, ...]]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Synced:
    """What a loop over members planned and decided, and what went wrong by resource uuid."""

    plan: PlannedSync
    decision: Decision
    errors: Mapping[str, SiteAgentError]


def reconcile(run: Pass, reach: Reach, name_people: Naming) -> Synced:
    """The members of a pass that is under way. Raises SiteAgentError where nothing could be planned."""
    progress = Progress(run.site, datetime.now(UTC))
    work = engine.reconcile(run, steps(run.site, run.rules, progress, reach, name_people))
    return Synced(work.plan, work.decision, progress.errors)


def plan(site: Site, reach: Reach = Reach()) -> PlannedSync:
    """What a pass would do now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(steps(site, gate.rules_of(site), Progress(site, datetime.now(UTC)), reach))


def steps(
    site: Site,
    rules: PolicyRules,
    progress: Progress,
    reach: Reach = Reach(),
    name_people: Naming = lambda facts, _: facts.users,
) -> Steps[SyncFacts, PlannedSync]:
    """The loop over the offering's resources, or over those of `reach`."""
    return Steps(
        key=MODE,
        observe=lambda: observe(site, reach, name_people),
        plan=planning.plan,
        refine=lambda facts, plan: refine(site, rules, facts, plan),
        portions=progress.portions,
        apply=site.backend.apply,
        read_back=progress.read_back,
        failed=progress.failed,
        tell=progress.tell,
        announce=lambda work: _announce(work, progress),
        requests=REQUESTS,
    )


def observe(site: Site, reach: Reach, name_people: Naming) -> SyncFacts:
    """Waldur and the cluster, each read once. Raises SiteAgentError. Without resources the cluster is not asked."""
    read = waldur_facts.gather(site, reach)
    snapshot = Snapshot(site.backend.cluster, complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
    if read.resources:
        snapshot = site.backend.observe(Scope(BULK_PARTS))
        read = replace(read, users=name_people(read, snapshot))
    foreign = named_accounts.of_others(
        site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours
    )
    return SyncFacts(
        read,
        snapshot,
        waldur_facts.sync_rules(site, read, silent=foreign.silent),
        site.backend.canonical,
        foreign=foreign.accounts,
        blocked=blocked.by_account(site.state_dir, site.offering.uuid),
        lost=None if reach.is_everything else (),
        is_whole=reach.is_everything,
    )


def refine(site: Site, rules: PolicyRules, facts: SyncFacts, plan: PlannedSync) -> SyncFacts | None:
    """Whoever would leave, asked about once more, with the jobs of those accounts, what is used of limits that would
    be lowered, and who else names a lost account. Raises SiteAgentError.
    """
    more = facts
    if leaving := plan.leaving - facts.confirmed:
        concerned = [r for r in facts.waldur.resources if fold(r.backend_id) in leaving]
        more = replace(
            more,
            waldur=waldur_facts.people_again(site, facts.waldur, concerned),
            confirmed=facts.confirmed | leaving,
            holders={**facts.holders, **_other_holders(site, plan, leaving)},
        )
    usage_of = gate.unknown_usage(rules, plan) - facts.usage_asked
    if leaving or usage_of:
        seen = site.backend.observe(Scope(frozenset(), jobs_of=leaving, usage_of=usage_of))
        snapshot = facts.snapshot.with_usage(seen)
        more = replace(more, snapshot=snapshot, usage_asked=facts.usage_asked | usage_of)
    if facts.lost is None and (lost := facts.lost_accounts()):
        holders = resources.holders_of_each(site.client, [claim.account for claim in lost], everywhere=True)
        more = replace(more, lost=tuple(claim for claim in lost if holders.get(claim.account, []) == []))
    return None if more is facts else more


def _other_holders(site: Site, plan: PlannedSync, leaving: frozenset[str]) -> dict[str, str]:
    """Accounts that somebody leaves and that resources outside of this plan name, too: Waldur is asked, and tells of
    all offerings that the token sees, whoever's agent serves them.
    """
    concerned = [each for each in plan.plans if each.account in leaving]
    spelled = {
        name: each.account for each in concerned for name in (each.account, each.case.resource.backend_id)
    }
    inside = {each.case.resource.uuid for each in plan.plans}
    found = {}
    for name, holders in resources.holders_of_each(site.client, spelled, everywhere=True).items():
        if isinstance(holders, WaldurError):
            found[spelled[name]] = f"whoever does ({holders})"
            continue
        for holder in holders:
            is_over = holder.state is ResourceState.TERMINATED or holder.offering_uuid in site.elsewhere
            if holder.uuid not in inside and not is_over:
                found[spelled[name]] = f"resource {holder.uuid}"
    return found


def _announce(work: Work[PlannedSync], progress: Progress) -> None:
    """Which accounts the offering names, for the others of the cluster; and what an operator should know of a
    resource, once and not in every pass.
    """
    site, plan = work.site, work.plan
    progress.take_up(plan, work.decision)
    which = (site.state_dir, site.backend.cluster)
    is_first = not named_accounts.of_offering(*which, site.offering.uuid)
    if plan.is_whole and (is_first or gate.is_known(work.run, MODE, plan)):
        named_accounts.write(site.state_dir, site.backend.cluster, site.offering, plan.facts.named)
    told = _told.setdefault(site.client, {})
    for each in plan.plans:
        resource = each.case.resource
        notes = (*((each.skipped,) if each.skipped else ()), *each.notes)
        if notes and told.get(resource.uuid) != notes:
            log.warning(
                "resource %s (%s, account %s): %s",
                resource.uuid,
                resource.name,
                each.account,
                "; ".join(notes),
            )
        told[resource.uuid] = notes
