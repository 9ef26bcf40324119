# SPDX-License-Identifier: MIT
"""Report to Waldur the last usage of resources that end, before they do: it takes none of a terminated resource.

One count of the cluster for all that end in a pass, by the same steps as a report: what a person has to decide on is
held as there. Asked by orders; whatever cannot be reported any more is recorded with its figure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from agent.core.account_names import fold
from agent.core.actions import Action
from agent.core.errors import BackendUnavailable, SiteAgentError, WaldurError
from agent.core.model import Resource, ResourceState, Snapshot
from agent.core.periods import SKEW, Month, attribution
from agent.core.plans import Outcome
from agent.core.units import ZERO
from agent.core.usage_actions import UsageAction, changed_amounts
from agent.core.waldur_actions import WaldurAction
from agent.plan.usage.planning import UsagePlan
from agent.run import engine
from agent.run.engine import Work
from agent.run.gate import Pass
from agent.run.site import Site, offering_facts
from agent.run.usage import departed, planning
from agent.run.usage import facts as report_facts
from agent.run.usage.planning import DatedMonth, MonthEnded, PlannedMonth, PlannedReport, ReportFacts
from agent.run.usage.submission import Submission
from agent.state import passes, reported_accounts, unreported_usage
from agent.state.unreported_usage import UnreportedUsage
from agent.waldur import members, resources, usages

log = logging.getLogger(__name__)

# slurmdbd may receive the end of a job late: a report in the first hour of a month may have missed some of the month
# before.
FINAL_AFTER = timedelta(hours=1)


class NotReported(WaldurError):
    """Waldur takes this usage no more; nothing was sent."""


@dataclass(frozen=True)
class LastUsage:
    """What keeps resources from ending now, by uuid: an error, or that their usage is held. The others may end."""

    errors: Mapping[str, SiteAgentError] = field(default_factory=dict)
    # A sentence on what is held.
    held: Mapping[str, str] = field(default_factory=dict)


def present(site: Site) -> datetime:
    """Return the time of now in the zone of the billing months."""
    return datetime.now(site.zone)


def submit(run: Pass, ending: Iterable[Resource], snapshot: Snapshot) -> LastUsage:
    """Count and submit what these resources have used in the months that are open. `snapshot`: their accounts as the
    pass has found them. An outage is an error of all of them.
    """
    # Waldur reports them so once their orders are approved.
    listed = [replace(each, state=ResourceState.TERMINATING) for each in ending if each.backend_id]
    site, backend = run.site, run.site.usage_backend
    if backend is None or not listed:
        return LastUsage()
    if isinstance(backend, SiteAgentError):
        return LastUsage(errors={each.uuid: backend for each in listed})
    site = replace(site, backend=backend)
    last_report = LastReport(run, site, listed, snapshot)
    try:
        engine.reconcile(run, last_report)
    except SiteAgentError as error:
        return LastUsage(errors={each.uuid: error for each in listed})
    return last_report.result


class LastReport(Submission):
    """One count for the resources that end in a pass, as a part of their orders: who was shown these was shown it."""

    def __init__(self, run: Pass, site: Site, ending: Sequence[Resource], snapshot: Snapshot) -> None:
        super().__init__(run, lambda: present(site))
        self.site = site
        self._ending = ending
        self._snapshot = snapshot
        self._closed: tuple[PlannedMonth, ...] = ()
        self.result = LastUsage()

    def was_shown(self, action: Action, shown: Set[Action]) -> bool:
        return True

    def observe(self) -> ReportFacts:
        site, now = self.site, present(self.site)
        months = self._open_months(now)
        facts = offering_facts(site)
        observed = report_facts.of_resources(site, facts, [*self._ending, *self._namesakes()], self._snapshot)
        if not observed.components:
            months = []
        found = planning.observe_endings(site, now, observed, months)
        if not _are_known(found.months, {fold(each.backend_id) for each in self._ending}):
            observed = report_facts.with_users_of(observed, members.offering_users(site.client))
            named = [
                replace(each, rules=replace(each.rules, names=observed.names)) if each.rules else each
                for each in found.months
            ]
            found = replace(found, observed=observed, months=tuple(named))
        if months and Month.of(present(site)) != Month.of(now):
            raise MonthEnded(f"{Month.of(now)} ended while its usage was read: it is counted again")
        return found

    def _namesakes(self) -> list[Resource]:
        """Return the other resources that name the same accounts, and have not ended. Raises WaldurError."""
        client, own = self.site.client, {each.uuid for each in self._ending}
        found = []
        for holders in resources.holders_of_each(client, {each.backend_id for each in self._ending}).values():
            if isinstance(holders, WaldurError):
                raise holders
            found += [r for r in holders if r.uuid not in own and r.state is not ResourceState.TERMINATED]
        return found

    def _open_months(self, now: datetime) -> list[DatedMonth]:
        """Return the months that are open, the newest first. Raises MonthEnded where it is unknown under which
        month Waldur would file what is reported now, and WaldurError.
        """
        site, current = self.site, Month.of(now)
        takes_dates = usages.takes_dates(site.client)
        date: datetime | None = attribution(current, site.zone)
        if not takes_dates or (date and date > now - SKEW):
            date = None
        if date is None and not planning.is_certain(site, current, now):
            raise MonthEnded(
                f"Waldur may take the last usage for another month than {current} just now: it is reported later"
            )
        months = [(current, date)]
        began = current.start(site.zone)
        if any(each.created is None or each.created < began for each in self._ending) and not self._is_final(
            began
        ):
            months.append(
                (current.previous, attribution(current.previous, site.zone) if takes_dates else None)
            )
        return months

    def _is_final(self, began: datetime) -> bool:
        """Return whether a report has counted the month before, after it had ended."""
        entries = passes.last(self.site.state_dir, self.site.offering.uuid, Submission.key)
        for entry in entries:
            try:
                return datetime.fromisoformat(str(entry.get("last_good"))) >= began + FINAL_AFTER
            except (TypeError, ValueError):
                continue
        return False

    def plan(self, facts: ReportFacts) -> PlannedReport:
        """Return what is submitted; months of which Waldur takes nothing are kept for the record."""
        found = planning.plan(facts)
        self._closed = tuple(each for each in found.months if not each.is_current and each.date is None)
        open_months = tuple(each for each in found.months if each not in self._closed)
        return replace(found, months=open_months, is_whole=False)

    def tell(self, work: Work[PlannedReport]) -> None:
        """Note what keeps a resource, and record what cannot be reported any more."""
        errors: dict[str, SiteAgentError] = {}
        held: dict[str, str] = {}
        over: list[Resource] = []
        for resource in self._ending:
            uuid = resource.uuid
            plans = [(m, p) for m in work.plan.months for p in m.plans if p.resource.uuid == uuid]
            error = self.error_of(uuid) or _silence(work.plan.months, uuid)
            reasons = [work.decision.reason(action) for _, plan in plans for action in plan.actions]
            if error is not None and _may_pass(error):
                errors[uuid] = error
            elif waits := list(dict.fromkeys(filter(None, reasons))):
                held[uuid] = f"its last usage is not reported yet: {'; '.join(waits)}"
            else:
                closed = [(m, p) for m in self._closed for p in m.plans if p.resource.uuid == uuid]
                self._give_up(work, [*plans, *closed], error)
                over.append(resource)
        reported_accounts.forget(
            self.site.state_dir, self.site.backend.cluster, self.site.offering.uuid, over
        )
        self.result = LastUsage(errors, held)

    def _give_up(
        self,
        work: Work[PlannedReport],
        plans: Sequence[tuple[PlannedMonth, UsagePlan]],
        error: SiteAgentError | None,
    ) -> None:
        """Write down what of a resource's usage Waldur does not take."""
        done = {outcome.action for outcome in work.report.outcomes if outcome.done}
        tried = {outcome.action for outcome in work.report.outcomes}
        for month, plan in plans:
            lost = [action for action in plan.actions if action not in done]
            if not lost and not plan.needs_person:
                continue
            why = str(error) if error else plan.skipped or f"Waldur takes no usage of {month.month} any more"
            unsent = NotReported(why, method="POST", path=usages.PATH)
            work.note([Outcome(action, unsent) for action in lost if action not in tried])
            figures = "; ".join(map(_figure, lost))
            figures = figures or departed.counted(self.site, work.plan, month, plan.account, plan.resource)
            if not figures:
                continue
            row = UnreportedUsage(plan.resource.uuid, plan.account, str(month.month), figures, why)
            unreported_usage.add(self.site.state_dir, self.site.offering.uuid, row)
            log.warning(
                "the last usage of %s (resource %s) in %s is not in Waldur: %s: %s. Put it right there; `status` shows "
                "it until `forget unreported-usage --offering %s`",
                plan.account,
                plan.resource.uuid,
                month.month,
                row.figures,
                why,
                self.site.offering.uuid,
                extra={"resource": plan.resource.uuid, "account": plan.account},
            )


def _figure(action: WaldurAction) -> str:
    assert isinstance(action, UsageAction)
    return changed_amounts(action.before, action.after) if action.is_total else action.in_short()


def _may_pass(error: SiteAgentError) -> bool:
    """Return whether it can be reported later: after an outage, once the token has the right, or when the resource has
    moved on (409).
    """
    return error.retryable or not isinstance(error, WaldurError) or error.denied or error.status == 409


def _silence(months: Iterable[PlannedMonth], uuid: str) -> SiteAgentError | None:
    """Return why an answer without any job is not believed (some was reported for this resource), or why there is no
    answer of this account.
    """
    for month in months:
        unknown = month.observed.usage.unknown
        reasons = [
            unknown[p.account] for p in month.plans if p.resource.uuid == uuid and p.account in unknown
        ]
        if reasons:
            return BackendUnavailable(f"what was used in {month.month} is not known: {reasons[0]}")
        amounts = (
            r.amount for (of, _), each in month.observed.ledger.records.items() if of == uuid for r in each
        )
        if not month.observed.usage.records and any(amount != ZERO for amount in amounts):
            return BackendUnavailable(
                f"the cluster names no job in {month.month}, and Waldur has usage of this resource: it is asked again"
            )
    return None


def _are_known(months: Iterable[planning.MonthFacts], accounts: set[str]) -> bool:
    """Return whether Waldur knows the share of every user of these accounts: then no offering user is looked up."""
    for month in months:
        shares = {fold(s.username) for each in month.observed.ledger.shares.values() for s in each}
        for account in accounts:
            used = month.observed.usage.accounts.get(account)
            if used is not None and not {fold(user) for user in used.users if user} <= shares:
                return False
    return True
