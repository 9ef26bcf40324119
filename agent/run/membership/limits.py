# SPDX-License-Identifier: MIT
"""Limits alone: what Waldur is to show of the limits that accounts have on the cluster, where those count. No member is
looked at, and nothing on the cluster is changed.
"""

from __future__ import annotations

from agent.core.actions import only
from agent.core.policy import LimitsSource
from agent.core.waldur_actions import ReportLimits
from agent.plan import membership
from agent.run import waldur_facts
from agent.run.engine import Mode, Work
from agent.run.membership import planning
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.results import ResourceResult, Result, postponed
from agent.run.site import Site
from agent.state import ledger

KEY = "limits"


def reason_for_none(site: Site) -> str:
    """Return why the limits of an offering's accounts are not Waldur's to show, empty where they are."""
    if site.offering.periodic_limits_enabled:
        return "a periodic policy of Waldur writes them (periodic_limits)"
    if site.offering.limits_source is LimitsSource.WALDUR:
        return "Waldur's count, and membership passes set them on the cluster (limits_source: waldur)"
    return ""


class Limits(Mode[SyncFacts, PlannedSync]):
    """The limits of all resources that are OK or erred and have an account."""

    key = KEY

    def observe(self) -> SyncFacts | None:
        site = self.site
        if why := reason_for_none(site):
            self.run.report.notes.append(f"no limits are reported: {why}")
            return None
        read = waldur_facts.without_people(site)
        if read.cluster is None:
            return None
        foreign = ledger.of_others(site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours)
        return SyncFacts(
            read,
            read.cluster,
            waldur_facts.sync_rules(site, read),
            site.backend.canonical,
            foreign=foreign.accounts,
            is_whole=False,
        )

    def plan(self, facts: SyncFacts) -> PlannedSync:
        found, _ = planning.cases(facts)
        return PlannedSync(facts, membership.limit_reports(found, facts.rules, facts.snapshot), {})

    def tell(self, work: Work[PlannedSync]) -> None:
        failed = work.send(only(ReportLimits, work.plan.actions))
        for each in work.plan.plans:
            uuid, notes = each.case.resource.uuid, (each.skipped, *each.notes)
            error = next((failed[action] for action in each.actions if action in failed), None)
            reports = [action for action in only(ReportLimits, each.actions) if work.allows(action)]
            if error is not None:
                result = ResourceResult(uuid, postponed(error), each.account, str(error), error)
            elif reports:
                result = ResourceResult(uuid, Result.DONE, each.account, reports[0].line())
            elif said := "; ".join(filter(None, notes)):
                result = ResourceResult(uuid, Result.WAITING, each.account, said)
            elif each.actions:
                why = work.decision.reason(each.actions[0])
                result = ResourceResult(uuid, Result.WAITING, each.account, why)
            else:
                work.report.in_step += 1
                continue
            work.report.resources.append(result)
