# SPDX-License-Identifier: MIT
"""Observe the resources of a membership pass, and confirm what its plan would remove.

Removals are confirmed: before anybody leaves, each resource's own team is read from Waldur. Somebody may have joined
while the cluster was read, and a fault of the bulk listing must remove nobody. Only then are the jobs of those accounts
read: an idle pass does not pay for it.
"""

from __future__ import annotations

from dataclasses import replace

from agent.core.account_names import fold
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import WaldurError
from agent.core.model import Part, ResourceState, Snapshot
from agent.run import gate, waldur_facts
from agent.run.gate import Pass
from agent.run.handed_on import NamedPeople
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.site import Site
from agent.state import blocked, cluster_usernames, ledger
from agent.waldur import resources
from backends.base import Scope


def observe(run: Pass) -> SyncFacts:
    """Read Waldur and the cluster, each once; without resources no cluster. Raises SiteAgentError."""
    site, scope, read = run.site, run.scope, waldur_facts.read(run)
    if read.cluster is None:
        snapshot = Snapshot(site.backend.cluster, complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
    else:
        snapshot = read.cluster
    if (named := run.result(NamedPeople)) is not None:
        read = replace(read, users=named.users, names_unknown=named.unknown)
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


def refine(run: Pass, facts: SyncFacts, plan: PlannedSync) -> SyncFacts | None:
    """Confirm the removals of a plan: return the facts with the teams, jobs and other holders of the accounts that
    somebody would leave, the used amounts of limits that would be lowered, the QoS and partitions of the cluster where
    members would get some, and the holders of lost accounts. None when nothing is to be confirmed.

    Raises SiteAgentError.
    """
    site, more = run.site, facts
    if leaving := plan.leaving - facts.confirmed:
        concerned = [r for r in facts.waldur.resources if fold(r.backend_id) in leaving]
        more = replace(
            more,
            waldur=waldur_facts.confirm_people(site, facts.waldur, concerned),
            confirmed=facts.confirmed | leaving,
            holders={**facts.holders, **_other_holders(site, plan, leaving)},
        )
    usage_of = gate.unknown_usage(run.rules, plan) - facts.usage_asked
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
