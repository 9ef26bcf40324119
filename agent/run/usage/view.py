# SPDX-License-Identifier: MIT
"""Read what was used of an offering in the last months: one command of the cluster per month, and list pages of Waldur
for names, limits and units. Changes nothing, and asks nothing by account.

Without the cluster there are no figures. Without Waldur there are the accounts of the cluster, in the units of
the configuration, without names and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from agent.core.account_names import fold
from agent.core.errors import SiteAgentError, WaldurError
from agent.core.model import OfferingFacts, Part
from agent.core.periods import Month, last_months
from agent.core.printable import shortlist
from agent.core.usage import Usage, UsageSource
from agent.plan.usage import figures as usage_figures
from agent.plan.usage.figures import FigureFacts, Sheet
from agent.run.site import Site
from agent.run.usage import facts as report_facts
from agent.waldur import offerings, resources
from backends.base import ChargeReader, Scope

Clock = Callable[[], datetime]


@dataclass(frozen=True)
class UsageView:
    """The usage of one offering in the last months."""

    name: str
    uuid: str
    cluster: str
    sheet: Sheet
    source: UsageSource
    zone: str
    # When it was read, in the site's zone.
    taken: datetime
    # Months in which the cluster named no job.
    unanswered: tuple[Month, ...] = ()
    # What else is unknown, or should be known.
    notes: tuple[str, ...] = ()
    # Why Waldur could not be read.
    waldur: SiteAgentError | None = None
    # What is counted, where `source` does not say.
    charged: str = ""


def view(site: Site, months: int, clock: Clock | None = None) -> UsageView:
    """Read the last `months` months, the present one among them. Raises SiteAgentError where the cluster fails."""
    taken = clock() if clock else datetime.now(site.zone)
    facts, listed, away = OfferingFacts(site.offering.uuid), None, None
    try:
        read = offerings.facts(site.client)
        listed = resources.listed(site.client, report_facts.STATES, fields=report_facts.FIELDS)
        facts = read
    except WaldurError as error:
        away = error
    wanted = last_months(Month.of(taken), months)
    usages = [
        report_facts.counted_of(site, report_facts.query(site, month, facts, listed or ()))
        for month in wanted
    ]
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.ACCOUNTS})))
    snapshot.require(Part.ACCOUNTS)
    # Nothing is used up of components that are bought once and for all.
    billed = facts.billing_types
    components = tuple(c for c in site.offering.components.values() if billed.get(c.name) != "fixed")
    untracked = report_facts.untracked(site, components, usages)
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
        unanswered=tuple(usage.query.month for usage in usages if not usage.records),
        notes=tuple(_notes(sheet, untracked, usages)),
        waldur=away,
        charged=site.backend.charged if isinstance(site.backend, ChargeReader) else "",
    )


def _notes(sheet: Sheet, untracked: dict[str, str], usages: Sequence[Usage]) -> list[str]:
    notes = report_facts.notes_of_untracked(untracked)
    for account in sheet.accounts:
        if len(account.resources) > 1:
            named = ", ".join(resource.name for resource in account.resources)
            notes.append(
                f"account {account.account} is named by several resources ({named}): no limit is listed"
            )
    lost = [account.account for account in sheet.accounts if not account.figures]
    if lost and any(usage.records for usage in usages):
        notes.append(f"not on the cluster, and without jobs, so that nothing is known: {shortlist(lost, 3)}")
    return notes
