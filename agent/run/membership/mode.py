# SPDX-License-Identifier: MIT
"""Membership: every allocation keeps the members, state, limits and place that Waldur says it has.

observe (`facts`) -> plan (`planning`) -> portions, read back, report (`progress`). Removals are confirmed: before
anybody leaves, each resource's own team is read from Waldur. Somebody may have joined while the cluster was read, and
a fault of the bulk listing must remove nobody. Only then are the jobs of those accounts read: an idle pass does not
pay for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from agent.config.model import Mode
from agent.core.account_names import fold
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import SiteAgentError, WaldurError
from agent.core.model import Deletion, Part, ResourceState, Snapshot
from agent.core.policy import PolicyRules
from agent.plan import departures
from agent.plan.policy.gate import Decision
from agent.run import engine, gate, ownership, waldur_facts
from agent.run.engine import Steps, Work
from agent.run.gate import Pass
from agent.run.lost_accounts import require_accounts
from agent.run.membership import planning
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.membership.progress import MembershipProgress
from agent.run.scope import PassScope
from agent.run.site import Site
from agent.run.waldur_facts import MembershipFacts
from agent.state import blocked, cluster_usernames, hierarchy_names, ledger
from agent.waldur import resources
from backends.base import BULK_PARTS, Scope

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC

# Gives names to people who have none yet, and returns the facts with the users as they are then.
NamePeople = Callable[[MembershipFacts, Snapshot], MembershipFacts]


@dataclass(frozen=True, slots=True)
class Synced:
    """The plan and decision of a loop over members, and its errors by resource uuid. `seen`: the cluster as it was read
    last, None where what was done could not be read back. `unremovable`: why users cannot be removed, for good.
    """

    plan: PlannedSync
    decision: Decision
    errors: Mapping[str, SiteAgentError]
    seen: Snapshot | None = None
    unremovable: Mapping[str, SiteAgentError] = field(default_factory=dict)


def reconcile(run: Pass, scope: PassScope, name_people: NamePeople) -> Synced:
    """Reconcile the members of a pass. Raises SiteAgentError where nothing could be planned."""
    progress = MembershipProgress(run.site, datetime.now(UTC))
    work = engine.reconcile(run, steps(run.site, run.rules, progress, scope, name_people))
    return Synced(work.plan, work.decision, progress.errors, progress.seen, progress.unremovable)


def plan(site: Site, scope: PassScope = PassScope()) -> PlannedSync:
    """Return what a pass would do now. Changes nothing. Raises SiteAgentError."""
    return engine.plan_of(
        steps(site, gate.rules_of(site), MembershipProgress(site, datetime.now(UTC)), scope)
    )


def steps(
    site: Site,
    rules: PolicyRules,
    progress: MembershipProgress,
    scope: PassScope = PassScope(),
    name_people: NamePeople = lambda facts, _: facts,
) -> Steps[SyncFacts, PlannedSync]:
    """Return the loop over the offering's resources, or over those of `scope`."""
    return Steps(
        key=MODE,
        observe=lambda: observe(site, scope, name_people),
        plan=planning.plan,
        refine=lambda facts, plan: refine(site, rules, facts, plan),
        portions=progress.portions,
        apply=site.backend.apply,
        read_back=progress.read_back,
        failed=progress.failed,
        tell=progress.tell,
        announce=lambda work: _announce(work, progress),
        requests=progress.requests,
    )


def observe(site: Site, scope: PassScope, name_people: NamePeople) -> SyncFacts:
    """Read Waldur and the cluster, each once; without resources no cluster. Raises SiteAgentError."""
    read = waldur_facts.gather(site, scope, read_cluster=lambda: site.backend.observe(Scope(BULK_PARTS)))
    if read.cluster is None:
        snapshot = Snapshot(site.backend.cluster, complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
    else:
        snapshot = read.cluster
        if not scope.is_everything:
            require_accounts(site, snapshot)
        read = name_people(read, snapshot)
    foreign = ledger.of_others(site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours)
    # Without resources the cluster was not read: nobody knows who is in an account that an order is at work on. Nor is
    # that known of people who may have another name there.
    is_known = bool(read.resources or not read.in_progress) and not read.names_unknown
    return SyncFacts(
        read,
        snapshot,
        waldur_facts.sync_rules(site, read, silent=foreign.silent),
        site.backend.canonical,
        foreign=foreign.accounts,
        blocked=blocked.by_account(site.state_dir, site.offering.uuid),
        lost=None if scope.is_everything else (),
        is_whole=scope.is_everything,
        known_names=cluster_usernames.of_offering(site.state_dir, site.offering.uuid),
        ends_users=scope.is_everything and is_known and site.client.if_supported(BeginDeletion.feature),
    )


def refine(site: Site, rules: PolicyRules, facts: SyncFacts, plan: PlannedSync) -> SyncFacts | None:
    """Confirm the removals of a plan: return the facts with the teams, jobs and other holders of the accounts that
    somebody would leave, the used amounts of limits that would be lowered, the QoS and partitions of the cluster where
    members would get some, and the holders of lost accounts. None when nothing is to be confirmed.

    Raises SiteAgentError.
    """
    more = facts
    if leaving := plan.leaving - facts.confirmed:
        concerned = [r for r in facts.waldur.resources if fold(r.backend_id) in leaving]
        more = replace(
            more,
            waldur=waldur_facts.confirm_people(site, facts.waldur, concerned),
            confirmed=facts.confirmed | leaving,
            holders={**facts.holders, **_other_holders(site, plan, leaving)},
        )
    usage_of = gate.unknown_usage(rules, plan) - facts.usage_asked
    if leaving or usage_of:
        seen = site.backend.observe(Scope(frozenset(), jobs_of=leaving, usage_of=usage_of))
        snapshot = facts.snapshot.with_usage(seen)
        more = replace(more, snapshot=snapshot, usage_asked=facts.usage_asked | usage_of)
    if names := plan.used_names - facts.names_asked:
        seen = site.backend.observe(Scope(frozenset(), names=names))
        asked = facts.names_asked | names
        more = replace(more, snapshot=more.snapshot.with_names(seen), names_asked=asked)
    if facts.lost is None and (lost := facts.lost_accounts()):
        holders = resources.holders_of_each(site.client, [claim.account for claim in lost], everywhere=True)
        more = replace(more, lost=tuple(claim for claim in lost if holders.get(claim.account, []) == []))
    return None if more is facts else more


def _other_holders(site: Site, plan: PlannedSync, leaving: frozenset[str]) -> dict[str, str]:
    """Ask Waldur which of the accounts that somebody leaves are named by resources outside of this plan, of all
    offerings that the token sees. Return the holder by account.
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


def _new_hierarchy_names(plan: PlannedSync) -> dict[str, str]:
    """Return the accounts of projects and customers as they stand, by uuid, where that is not remembered."""
    known = plan.facts.rules.offering.known_names
    found: dict[str, str] = {}
    for each in plan.plans:
        resource, spec = each.case.resource, each.spec
        place = [] if spec is None else [spec.account, *reversed(spec.ancestors)]
        uuids = (resource.project_uuid, resource.customer_uuid)
        for below, above, uuid in zip(place, place[1:], uuids, strict=False):
            standing = plan.snapshot.accounts.get(below.name)
            if uuid and standing is not None and standing.parent == above.name:
                found[uuid] = above.name
    return {uuid: account for uuid, account in found.items() if known.get(uuid) != account}


def _announce(work: Work[PlannedSync], progress: MembershipProgress) -> PlannedSync | None:
    """Remember which accounts the offering names, for the others of the cluster; log notes on resources once. Tell
    Waldur whose deletion begins; return the plan as it is after that.
    """
    site, plan = work.site, work.plan
    progress.take_up(plan, work.decision)
    if plan.unmanaged:
        work.report.notes.append(plan.unmanaged)
    if plan.facts.rules.nobody_leaves:
        work.report.notes.append(f"nobody is removed from any account: {plan.facts.rules.nobody_leaves}")
    which = (site.state_dir, site.backend.cluster)
    is_first = not ledger.of_offering(*which, site.offering.uuid)
    if plan.is_whole and (is_first or gate.is_known(work.run, MODE, plan)):
        standing = plan.snapshot.accounts.keys() if plan.facts.waldur.resources else None
        ledger.write_named(site.state_dir, site.backend.cluster, site.offering, plan.facts.named, standing)
        ownership.forget_questions(site, work.decision, plan.context, plan.snapshot)
        hierarchy_names.write(
            site.state_dir, site.backend.cluster, site.offering.uuid, _new_hierarchy_names(plan)
        )
    if plan.facts.waldur.resources and not plan.facts.waldur.names_unknown:
        cluster_usernames.write(site.state_dir, site.offering.uuid, plan.names_in_step)
    for each in plan.plans:
        resource = each.case.resource
        notes = (*((each.skipped,) if each.skipped else ()), *each.notes)
        if notes and site.cache.logged.get(resource.uuid) != notes:
            log.warning(
                "resource %s (%s, account %s): %s",
                resource.uuid,
                resource.name,
                each.account,
                "; ".join(notes),
                extra={"resource": resource.uuid, "account": each.account},
            )
        site.cache.logged[resource.uuid] = notes
    return _begun_deletions(work)


def _begun_deletions(work: Work[PlannedSync]) -> PlannedSync | None:
    """Tell Waldur whose account is deleted now, before anybody is removed from anything. Return the plan without those
    whom it has taken back meanwhile; None where there is nobody to tell of.
    """
    facts, allowed = work.plan.facts, frozenset(work.decision.allowed)
    due = [each for each in work.plan.openings if departures.due(each, work.plan.actions, allowed)]
    if not due or not gate.is_known(work.run, MODE, work.plan):
        return None
    failed = work.send(due)
    is_lacking = not work.site.client.if_supported(BeginDeletion.feature)
    kept = frozenset(each.offering_user for each in due if is_lacking or each in failed)
    begun = {each.offering_user for each in due} - kept
    for error in failed.values():
        work.report.later = work.report.later or (error if error.retryable else None)
    users = [
        replace(user, state=Deletion.DELETING) if user.uuid in begun else user for user in facts.waldur.users
    ]
    return planning.plan(
        replace(facts, waldur=replace(facts.waldur, users=users), taken_back=facts.taken_back | kept)
    )
