# SPDX-License-Identifier: MIT
"""Count one month in every way there is, to see whether bills would change and whether the figures can be trusted.

The number of commands does not grow with accounts; of Waldur list pages are read. Changes nothing. What cannot be read
is unknown: sreport has closed months in the cluster's own zone only, and Waldur may be away.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from agent.core.account_names import fold
from agent.core.errors import BackendError, WaldurError
from agent.core.model import OfferingFacts, Part, Resource, ResourceState
from agent.core.periods import Month
from agent.core.units import Shares
from agent.core.usage import Usage, UsageQuery, UsageSource
from agent.plan.shared_limits import shares_of
from agent.plan.usage import check as usage_check
from agent.plan.usage import figures as usage_figures
from agent.plan.usage import planning as planner
from agent.plan.usage.check import CheckFacts, Comparison, CountedBy
from agent.plan.usage.figures import Measure
from agent.plan.usage.planning import Ledger
from agent.run.site import Site
from agent.run.usage import facts as report_facts
from agent.waldur import offerings, resources, usages
from backends.base import ChargeReader, Scope, UsageCheck

NO_SECOND_COUNT = (
    "there is no second count: this kind of cluster keeps one record of what was used, which is read here"
)
# A resource that has ended names its account still, and Waldur bills what was reported of it.
STATES = (*report_facts.STATES, ResourceState.TERMINATED)
Submitted = Mapping[tuple[str, str], Decimal | None]


@dataclass(frozen=True)
class Checked:
    """One month of an offering, counted in every way."""

    name: str
    uuid: str
    cluster: str
    month: Month
    zone: str
    source: UsageSource
    measures: tuple[Measure, ...]
    comparison: Comparison
    is_closed: bool = True
    # Why sreport has no figures, empty where it has.
    summary_unknown: str = ""
    # How to check an account by hand, for those with differences.
    commands: Mapping[str, str] | None = None
    has_second_count: bool = True
    # What is counted, where `source` does not say.
    charged: str = ""
    notes: tuple[str, ...] = ()
    waldur: WaldurError | None = None
    # Something is unknown because of an outage.
    failed: bool = False


@dataclass(frozen=True)
class _Summary:
    usage: Usage | None = None
    unknown: str = ""
    failed: bool = False


@dataclass(frozen=True)
class _Waldur:
    facts: OfferingFacts
    submitted: Submitted | None = None
    resources: Mapping[str, str] | None = None
    shares: Mapping[str, Shares] | None = None
    ended: frozenset[str] = frozenset()
    listed: Sequence[Resource] = ()
    error: WaldurError | None = None


def check(
    site: Site, month: Month | None = None, *, account: str = "", clock: Callable[[], datetime] | None = None
) -> Checked:
    """Count the last closed month, or this one; one account or all. Raises SiteAgentError where sacct fails."""
    present = Month.of(clock() if clock else datetime.now(site.zone))
    which = month or present.previous
    reader = report_facts.reader(site)
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS})))
    snapshot.require(Part.ACCOUNTS)
    waldur = _waldur(site, which)
    configured = report_facts.query(site, which, waldur.facts, waldur.listed)
    query = replace(configured, source=UsageSource.REQUESTED)
    counted = _counted(site, query)
    summary = _summed_up(site, query, is_closed=which < present)
    if summary.usage is not None:
        counted[CountedBy.SUMMARY] = summary.usage
    last_runs = None
    if which < present and counted[CountedBy.REFERENCE].accounts != counted[CountedBy.REQUESTED].accounts:
        # Only where the reference has other figures: how much of that is requeues?
        last_runs = report_facts.counted_of(site, replace(query, last_runs_only=True))
    components = tuple(site.offering.components.values())
    lacking = report_facts.untracked(
        site, components, (counted[CountedBy.REQUESTED], counted[CountedBy.ALLOCATED])
    )
    facts = CheckFacts(
        usages=counted,
        known=frozenset(map(fold, snapshot.accounts)),
        components=planner.accountable(components, waldur.facts.billing_types)[0]
        if waldur.error is None
        else components,
        source=site.offering.usage_source,
        last_runs=last_runs,
        untracked=frozenset(lacking),
        waldur=waldur.submitted,
        resources=waldur.resources or {},
        shares=waldur.shares or {},
        ended=waldur.ended,
    )
    comparison = usage_check.compare(facts, fold(account))
    return Checked(
        name=site.offering.name,
        uuid=site.offering.uuid,
        cluster=site.backend.cluster,
        month=which,
        zone=site.zone.key,
        source=site.offering.usage_source,
        measures=usage_figures.measures(facts.components, waldur.facts.components),
        comparison=comparison,
        is_closed=which < present,
        summary_unknown=summary.unknown,
        has_second_count=isinstance(site.backend, UsageCheck),
        charged=site.backend.charged if isinstance(site.backend, ChargeReader) else "",
        commands={
            line.account: reader.usage_command(configured, line.account)
            for line in comparison.lines
            if line.differs
        },
        notes=tuple(_notes(counted, lacking, comparison.unknown, is_closed=which < present)),
        waldur=waldur.error,
        failed=summary.failed or waldur.error is not None,
    )


def _counted(site: Site, query: UsageQuery) -> dict[CountedBy, Usage]:
    ways = {
        CountedBy.REFERENCE: replace(query, as_reference=True),
        CountedBy.REQUESTED: query,
        CountedBy.ALLOCATED: replace(query, source=UsageSource.ALLOCATED),
    }
    if isinstance(site.backend, ChargeReader):  # one count, however it is asked for
        return dict.fromkeys(ways, report_facts.counted_of(site, query))
    return {way: report_facts.counted_of(site, asked) for way, asked in ways.items()}


def _summed_up(site: Site, query: UsageQuery, *, is_closed: bool) -> _Summary:
    if not isinstance(site.backend, UsageCheck):
        return _Summary(unknown=NO_SECOND_COUNT)
    if not is_closed:
        return _Summary(unknown=f"{query.month} has not ended, and sreport reports closed months only")
    try:
        usage = site.backend.rolled_up(query)
    except BackendError as error:
        return _Summary(unknown=str(error), failed=error.retryable)
    if not usage.records:
        return _Summary(
            unknown=f"sreport has no rows at all for {query.month}, which says nothing: slurmdbd has not rolled it "
            "up, or the cluster was registered later"
        )
    return _Summary(usage)


def _waldur(site: Site, month: Month) -> _Waldur:
    """Read what Waldur has for the month, by account and component; None where it has no record."""
    client = site.client
    try:
        facts = offerings.facts(client)
        listed = resources.listed(client, STATES, fields=report_facts.FIELDS)
        ledger = Ledger.of(usages.of_month(client, month))
    except WaldurError as error:
        return _Waldur(OfferingFacts(site.offering.uuid), error=error)
    holders: dict[str, list[Resource]] = defaultdict(list)
    for resource in listed:
        if resource.backend_id:
            holders[fold(resource.backend_id)].append(resource)
    submitted: dict[tuple[str, str], Decimal | None] = {}
    shares, ended = {}, set()
    for account, named in holders.items():
        alive = [each for each in named if each.state is not ResourceState.TERMINATED]
        if len(alive) > 1:
            continue  # no usage is reported of any of them
        if not alive:
            ended.add(account)
        shares[account] = shares_of((alive or named)[-1], tuple(site.offering.components.values()))
        for name in site.offering.components:
            # An account whose resource has ended may stand for a new one of the same name.
            records = [record for each in named if (record := ledger.record(each.uuid, name))]
            amounts = [record.amount for record in records if record.amount is not None]
            submitted[account, name] = sum(amounts[1:], amounts[0]) if amounts else None
    names = {account: " / ".join(r.name for r in each) for account, each in holders.items()}
    return _Waldur(facts, submitted, names, shares, frozenset(ended), listed)


def _notes(
    counted: Mapping[CountedBy, Usage], untracked: Mapping[str, str], account: str, *, is_closed: bool
) -> list[str]:
    """`account`: one that was asked for and is not known."""
    asked = counted[CountedBy.REQUESTED]
    notes = report_facts.notes_of_untracked(untracked)
    if account:
        notes.append(
            f"the account {account} is not known: the cluster has none of that name, and names no job of it in "
            f"{asked.query.month}"
        )
    if not asked.records:
        notes.append(f"{asked.query.month}: unknown, the cluster names no job at all")
    elif not is_closed and asked.live:
        notes.append(
            f"{asked.query.month} has not ended: jobs that run count on between two facts, which makes small "
            "differences"
        )
    return notes
