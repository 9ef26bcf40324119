# SPDX-License-Identifier: MIT
"""`usage`: what each account has used, month by month, in Waldur's units and against its limits; as a table, as JSON,
or as a page with charts. Reads the cluster and Waldur, changes neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from agent.cli.options import Outcome, amount_text, of_each, print_errors, print_json, served_offerings
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.cli.usage import table
from agent.config.model import Mode
from agent.plan.usage.figures import AccountFigures, Figures, Sheet, period_bounds, used_up
from agent.run.site import connect
from agent.run.usage import view as usage_view
from agent.run.usage.view import UsageView


def command(
    config_file: Path | None,
    offering_uuid: str | None,
    months: int,
    with_users: bool,
    as_json: bool,
    page: Path | None,
) -> int:
    settings = load_settings(config_file)
    served = served_offerings(settings, offering_uuid, Mode.REPORT)
    usages = of_each(served, lambda each: usage_view.view(connect(settings, each, Mode.REPORT), months))
    views = [each.found for each in usages if each.found]
    if as_json:
        print_json({"offerings": [_document(each, with_users=with_users) for each in usages]})
    elif page is None:
        for view in views:
            table.show(view, with_users=with_users)
    print_errors(
        (each.offering, each.error or (each.found.waldur if each.found else None)) for each in usages
    )
    for each in usages:
        if each.found and each.found.waldur:
            echo(
                f"{each.offering.name}: without Waldur these are all accounts of the cluster, in the units of the "
                "configuration; names and limits are unknown",
                err=True,
            )
    if page is not None and views:
        failed = {each.offering.name: str(each.error) for each in usages if each.error}
        # Imported here: who wants a table waits for no templates.
        from agent.cli import pages
        from agent.cli.usage import page as usage_page

        pages.write(page, usage_page.render(views, failed, with_users=with_users))
        echo(f"written to {page}", err=True)
    return 0 if all(each.found and each.found.waldur is None for each in usages) else 1


def _document(outcome: Outcome[UsageView], *, with_users: bool) -> dict[str, Any]:
    """Amounts are text with two decimals, as they are sent to Waldur; null for what is unknown."""
    view = outcome.found
    if view is None:
        return outcome.as_json()
    sheet = view.sheet
    bounds = {m.name: period_bounds(m.period, view.taken) for m in sheet.measures}
    return {
        **outcome.as_json(),
        "error": str(view.waldur) if view.waldur else None,
        "cluster": view.cluster,
        "taken": view.taken.isoformat(timespec="seconds"),
        "zone": view.zone,
        "usage_source": view.source,
        "months": [str(month) for month in sheet.months],
        "months_without_answer": [str(month) for month in view.unanswered],
        "components": [
            {"name": m.name, "label": m.label, "unit": m.unit, "limit_period": m.period}
            for m in sheet.measures
        ],
        "accounts": [_account(view, each, bounds, with_users=with_users) for each in sheet.accounts],
        "other_accounts": [_account(view, each, bounds, with_users=with_users) for each in sheet.others],
        "notes": list(view.notes),
    }


def _account(
    view: UsageView,
    account: AccountFigures,
    bounds: Mapping[str, tuple[datetime, datetime] | None],
    *,
    with_users: bool,
) -> dict[str, Any]:
    """`bounds`: of each measure's period."""
    sheet = view.sheet
    days = {m.name: used_up(sheet.use(account, m), bounds[m.name], view.taken) for m in sheet.measures}
    found: dict[str, Any] = {
        "account": account.account,
        "project": account.project,
        "resources": [{"uuid": r.uuid, "name": r.name} for r in account.resources],
        "limits": {name: f"{limit:f}" for name, limit in account.limits.items()},
        "used_of_limit": {m.name: sheet.use(account, m).share for m in sheet.measures},
        "used_up": {name: f"{day:%Y-%m-%d}" if day else None for name, day in days.items()},
        "usage": _amounts(sheet, account.figures),
    }
    if with_users:
        found["users"] = {user: _amounts(sheet, figures) for user, figures in sorted(account.users.items())}
    return found


def _amounts(sheet: Sheet, figures: Figures) -> dict[str, dict[str, str | None]]:
    """By month, then by component."""
    return {
        str(month): {m.name: amount_text(figures.get((m.name, month))) for m in sheet.measures}
        for month in sheet.months
    }
