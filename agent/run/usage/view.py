# SPDX-License-Identifier: MIT
"""Show what was used of an offering in the last months: one command of the cluster per month, and list pages of Waldur
for names, limits and units. Changes nothing, and asks nothing by account.

Without the cluster there is nothing to show. Without Waldur there are the accounts of the cluster, in the units of
the configuration, without names and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.core.account_names import fold
from agent.core.errors import WaldurError
from agent.core.model import Component, OfferingFacts, Part
from agent.core.periods import Month, last_months
from agent.core.usage import Usage, UsageSource
from agent.plan.usage import figures as usage_figures
from agent.plan.usage import planning as planner
from agent.plan.usage.figures import FigureFacts, Sheet
from agent.run.site import Site
from agent.run.usage import facts as report_facts
from agent.waldur import offerings, resources
from backends.base import ChargeReader, Scope

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class UsageView:
    """`taken`: when, in the site's zone. `silent`: months in which the cluster named no job. `notes`: what else is
    unknown, or should be known. `waldur`: why Waldur could not be read. `charged`: what is counted, where `source` does
    not say.
    """

    name: str
    uuid: str
    cluster: str
    sheet: Sheet
    source: UsageSource
    zone: str
    taken: datetime
    silent: tuple[Month, ...] = ()
    notes: tuple[str, ...] = ()
    waldur: WaldurError | None = None
    charged: str = ""


def view(site: Site, months: int, clock: Clock | None = None) -> UsageView:
    """Read the last `months` months, the present one among them. Raises SiteAgentError where the cluster fails."""
    taken = clock() if clock else datetime.now(site.zone)
    reader = report_facts.reader(site)
    usages = [reader.usage(report_facts.query(site, m)) for m in last_months(Month.of(taken), months)]
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS})))
    snapshot.require(Part.ACCOUNTS)
    facts, listed, away = OfferingFacts(site.offering.uuid), None, None
    try:
        read = offerings.facts(site.client)
        listed = resources.listed(site.client, report_facts.STATES, fields=report_facts.FIELDS)
        facts = read
    except WaldurError as error:
        away = error
    # Nothing is used up of components that are bought once and for all.
    fixed = {c.type for c in facts.components if c.fields.get("billing_type") == "fixed"}
    components = tuple(c for c in site.offering.components.values() if c.name not in fixed)
    untracked = _untracked(site, components, usages)
    known = frozenset(map(fold, snapshot.accounts))
    readings = FigureFacts(usages, components, known, listed, frozenset(untracked))
    sheet = usage_figures.sheet(readings, usage_figures.measures(components, facts.components))
    return UsageView(
        name=site.offering.name,
        uuid=site.offering.uuid,
        cluster=site.backend.cluster,
        sheet=sheet,
        source=site.offering.usage_source,
        zone=site.zone.key,
        taken=taken,
        silent=tuple(usage.query.month for usage in usages if not usage.records),
        notes=tuple(_notes(sheet, untracked, usages)),
        waldur=away,
        charged=site.backend.charged if isinstance(site.backend, ChargeReader) else "",
    )


def _untracked(site: Site, components: Sequence[Component], usages: Sequence[Usage]) -> dict[str, str]:
    """Return components whose TRES the cluster does not track. Asked only where nobody had any of it in any month."""
    known = [usage for usage in usages if usage.records]
    counted = frozenset[str]().union(*(planner.counted(usage) for usage in known))
    doubtful = planner.untracked(components, counted)
    if not known or not doubtful:
        return {}
    return report_facts.tracked(site, [c for c in components if c.name in doubtful], known[-1])


def _notes(sheet: Sheet, untracked: dict[str, str], usages: Sequence[Usage]) -> list[str]:
    notes = [
        f"{name}: the cluster does not count {tres}, so its usage is unknown"
        for name, tres in untracked.items()
    ]
    for account in sheet.accounts:
        if len(account.resources) > 1:
            named = ", ".join(resource.name for resource in account.resources)
            notes.append(
                f"account {account.account} is named by several resources ({named}): no limit is shown"
            )
    lost = [account.account for account in sheet.accounts if not account.figures]
    if lost and any(usage.records for usage in usages):
        some = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        notes.append(f"not on the cluster, and without jobs, so that nothing is known: {some}")
    return notes
