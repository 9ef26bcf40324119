# SPDX-License-Identifier: MIT
"""Membership: every allocation keeps the members, state, limits and place that Waldur says it has.

observe Waldur and the cluster (`membership_facts`) -> plan (`membership_plan`) -> policy -> apply
(`membership_apply`) -> journal. Called by the tasks and by `manage.py run`, `plan` and `drift`.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from weakref import WeakKeyDictionary

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.core.model import Snapshot
from agent.core.names import fold
from agent.plan.policy.gate import Judgement
from agent.plan.policy.rules import Grounds
from agent.run import gate as policing
from agent.run.membership import apply as membership_apply
from agent.run.membership import confirmation as second_look
from agent.run.membership import facts as membership_facts
from agent.run.membership import planning as membership_plan
from agent.run.membership.apply import Sync
from agent.run.membership.facts import MembershipFacts, Reach
from agent.run.membership.planning import PlannedSync
from agent.run.people import provisioning as followups
from agent.run.results import PassReport
from agent.run.site import Site, effort_of
from agent.state import claims, passes
from agent.waldur.client import WaldurClient
from backends.base import BULK_PARTS, Scope

log = logging.getLogger(__name__)

MODE = Mode.MEMBERSHIP_SYNC
UNBOUNDED_S = float("inf")

# The notes of each resource that were told last, for the life of a site's client.
_told: WeakKeyDictionary[WaldurClient, dict[str, tuple[str, ...]]] = WeakKeyDictionary()


def plan(site: Site, reach: Reach = Reach()) -> PlannedSync:
    """What a pass would do now. Changes nothing. Raises SiteAgentError."""
    return _planned(site, membership_facts.gather(site, reach), _observed(site), reach)


def judged(site: Site, planned: PlannedSync) -> Judgement:
    """What the policy would do with this plan. Writes nothing."""
    return policing.judged(site, MODE, planned.plan(), planned.snapshot, grounds_of(planned))


def run_pass(site: Site, *, reach: Reach = Reach(), seconds: float = UNBOUNDED_S) -> PassReport:
    """One pass over the offering, or over one resource or project. After `seconds` no new portion is begun."""
    report = PassReport(MODE, site.offering.uuid, site.offering.name)
    until_s = time.monotonic() + seconds
    with effort_of(site) as report.effort:
        try:
            _pass(site, reach, report, until_s)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report, subject=reach.resource_uuid or reach.project_uuid)
    return report


def grounds_of(planned: PlannedSync) -> Grounds:
    """Accounts that Waldur names: those of the resources, and of their projects and customers."""
    tiers = {tier.name for spec in planned.specs.values() for tier in spec.ancestors}
    return Grounds(named=frozenset({*planned.named, *map(fold, tiers)}))


def _pass(site: Site, reach: Reach, report: PassReport, until_s: float) -> None:
    facts = membership_facts.gather(site, reach)
    if reach.is_everything:
        claims.leave(site, membership_facts.named_accounts([*facts.resources, *facts.in_progress]))
    if not facts.resources:
        if reach.is_everything:
            policing.nothing_planned(site, MODE)
        return
    snapshot = _observed(site)
    facts = followups.named(site, facts, snapshot, report)
    planned = _planned(site, facts, snapshot, reach)
    _tell_notes(site, planned)
    _carry_out(site, planned, report, whole=reach.is_everything, until_s=until_s)


def _planned(site: Site, facts: MembershipFacts, snapshot: Snapshot, reach: Reach) -> PlannedSync:
    """The plan; where somebody would leave, made again from what Waldur says now."""
    planned = membership_plan.plan_pass(site, facts, snapshot, reach)
    again = second_look.facts_of_leavers(site, facts, planned)
    return planned if again is None else membership_plan.plan_pass(site, again, snapshot, reach)


def apply_planned(site: Site, planned: PlannedSync) -> PassReport:
    """Carry out a plan over everything of the offering that `plan` has just made."""
    report = PassReport(MODE, site.offering.uuid, site.offering.name)
    with effort_of(site) as report.effort:
        try:
            _carry_out(site, planned, report, whole=True, until_s=UNBOUNDED_S)
        except SiteAgentError as error:
            report.error = error
    passes.record(site.state_dir, report)
    return report


def _carry_out(site: Site, planned: PlannedSync, report: PassReport, *, whole: bool, until_s: float) -> None:
    judgement = policing.policed(
        site,
        MODE,
        planned.plan(),
        planned.snapshot,
        grounds_of(planned),
        whole=whole,
    )
    sync = Sync(site, planned, judgement, report)
    report.held, report.refused = judgement.held, judgement.refused
    membership_apply.apply(sync, now=datetime.now(UTC), until_s=until_s)
    followups.after_sync(sync)


def _observed(site: Site) -> Snapshot:
    return site.backend.observe(Scope(BULK_PARTS))


def _tell_notes(site: Site, planned: PlannedSync) -> None:
    """What an operator should know of a resource, once and not in every pass."""
    told = _told.setdefault(site.client, {})
    for plan in planned.plans:
        resource = plan.case.resource
        notes = (*((plan.skipped,) if plan.skipped else ()), *plan.notes)
        if notes and told.get(resource.uuid) != notes:
            log.warning(
                "resource %s (%s, account %s): %s",
                resource.uuid,
                resource.name,
                plan.account,
                "; ".join(notes),
            )
        told[resource.uuid] = notes
