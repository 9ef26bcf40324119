# SPDX-License-Identifier: MIT
"""Accounts that were reported once and that no resource names any more, though no order ended them: staff has moved
or terminated the resource, or changed its `backend_id`. Waldur takes no more of their usage from here, so what the
cluster counts is logged and listed by `status`, for a person.
"""

from __future__ import annotations

import logging

from agent.core.account_names import fold
from agent.core.model import Resource
from agent.core.usage import AccountUsage
from agent.core.usage_actions import changed_amounts
from agent.plan.shared_limits import shares_of
from agent.run.site import Site
from agent.run.usage.planning import PlannedMonth, PlannedReport
from agent.state import reported_accounts, unreported_usage
from agent.state.unreported_usage import UnreportedUsage

log = logging.getLogger(__name__)

WHY = (
    "no resource of the offering names the account any more, and no order of this host ended it: what it has used "
    "since the last report is not reported"
)


def note(site: Site, report: PlannedReport) -> None:
    """Record what the cluster counts of such accounts, and remember those that this report covers."""
    observed, offering = report.observed, site.offering
    which = (site.state_dir, site.backend.cluster, offering.uuid)
    named = {fold(resource.backend_id) for resource in observed.resources}
    taken = reported_accounts.of_others(*which[:2], site.counting_alike).keys()
    standing = set(map(fold, observed.snapshot.accounts))
    for account in sorted((reported_accounts.of_offering(*which) & standing) - named - taken):
        for month in report.months:
            if figures := counted(site, report, month, account):
                row = UnreportedUsage(account, account, str(month.month), f"counted in all: {figures}", WHY)
                unreported_usage.add(site.state_dir, offering.uuid, row)
                log.warning(
                    "the last usage of %s in %s may not be in Waldur: %s: %s. Compare it there; `status` shows it "
                    "until `forget unreported-usage --offering %s`",
                    account,
                    month.month,
                    row.figures,
                    WHY,
                    offering.uuid,
                    extra={"account": account},
                )
    reported_accounts.write(*which, observed.resources)


def counted(
    site: Site, report: PlannedReport, month: PlannedMonth, account: str, resource: Resource | None = None
) -> str:
    """Return what the cluster counts of an account in a month, in Waldur's units; empty where that is nothing."""
    usage = month.observed.usage
    used = usage.accounts.get(account, AccountUsage()).total
    shares = shares_of(resource, tuple(site.offering.components.values()))
    amounts = {c.name: usage.amount(c, used, shares) for c in report.observed.components}
    found = tuple((name, f"{amount:f}") for name, amount in amounts.items() if amount)
    return changed_amounts((), found) if found else ""
