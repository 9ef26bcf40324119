# SPDX-License-Identifier: MIT
"""`usage`: what each account has used, month by month, in Waldur's units and against its limits; as a table, as JSON,
or as a page with charts. Reads the cluster and Waldur, changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agent.cli import pages
from agent.cli.options import (
    config_option,
    json_option,
    load_settings,
    offering_option,
    print_error,
    print_json,
    print_unserved,
    select_offerings,
)
from agent.cli.output import echo
from agent.cli.usage import page as usage_page
from agent.cli.usage import table
from agent.config.model import Mode, Offering
from agent.core.errors import SiteAgentError
from agent.plan.usage.figures import AccountFigures, Figures, Sheet
from agent.run.site import connect
from agent.run.usage import view as usage_view
from agent.run.usage.view import UsageView

MOST_MONTHS = 36


@dataclass(frozen=True, slots=True)
class OfferingUsage:
    """One offering: its figures, or the error that kept them from being read."""

    offering: Offering
    view: UsageView | None = None
    error: SiteAgentError | None = None

    @property
    def is_whole(self) -> bool:
        return self.view is not None and self.view.waldur is None

    def print_problems(self) -> None:
        """Print on stderr what is missing."""
        if self.error:
            print_error(self.offering, self.error)
        elif self.view and self.view.waldur:
            print_error(self.offering, self.view.waldur)
            echo(
                f"{self.offering.name}: without Waldur these are all accounts of the cluster, in the units of the "
                "configuration; names and limits are unknown",
                err=True,
            )

    def as_json(self, *, with_users: bool) -> dict[str, Any]:
        """Amounts are text with two decimals, as they are sent to Waldur; null for what is unknown."""
        about: dict[str, Any] = {"offering": self.offering.uuid, "name": self.offering.name}
        view = self.view
        if view is None:
            return {**about, "error": str(self.error)}
        sheet = view.sheet
        return {
            **about,
            "error": str(view.waldur) if view.waldur else None,
            "cluster": view.cluster,
            "taken": view.taken.isoformat(timespec="seconds"),
            "zone": view.zone,
            "usage_source": view.source,
            "months": [str(month) for month in sheet.months],
            "months_without_answer": [str(month) for month in view.silent],
            "components": [
                {"name": m.name, "label": m.label, "unit": m.unit, "limit_period": m.period}
                for m in sheet.measures
            ],
            "accounts": [_account(sheet, account, with_users=with_users) for account in sheet.accounts],
            "other_accounts": [_account(sheet, account, with_users=with_users) for account in sheet.others],
            "notes": list(view.notes),
        }


@click.command()
@config_option
@offering_option
@click.option("--months", type=click.IntRange(1, MOST_MONTHS), default=3, show_default=True, metavar="N",
              help="How many months, the present one included. Each costs one command of the cluster.")  # fmt: skip
@click.option("--users", "with_users", is_flag=True, help="The users of each account, too.")
@json_option
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a page with charts, for a browser, instead of printing a table.")  # fmt: skip
def command(
    config_file: Path | None,
    offering_uuid: str | None,
    months: int,
    with_users: bool,
    as_json: bool,
    page: Path | None,
) -> int:
    """Show what each account has used, month by month, in Waldur's units, against its limits. Exit code 1 when the
    cluster or Waldur did not answer.
    """
    settings = load_settings(config_file)
    served = [o for o in select_offerings(settings, offering_uuid) if o.backend_of(Mode.REPORT)]
    usages = []
    for offering in served:
        try:
            site = connect(settings, offering, Mode.REPORT)
            usages.append(OfferingUsage(offering, usage_view.view(site, months)))
        except SiteAgentError as error:
            usages.append(OfferingUsage(offering, error=error))
    if not served:
        print_unserved(Mode.REPORT)
    views = [each.view for each in usages if each.view]
    if as_json:
        print_json({"offerings": [each.as_json(with_users=with_users) for each in usages]})
    elif page is None:
        for view in views:
            table.show(view, with_users=with_users)
    for each in usages:
        each.print_problems()
    if page is not None and views:
        failed = {each.offering.name: str(each.error) for each in usages if each.error}
        pages.write(page, usage_page.render(views, failed, with_users=with_users))
        echo(f"written to {page}", err=True)
    return 0 if all(each.is_whole for each in usages) else 1


def _account(sheet: Sheet, account: AccountFigures, *, with_users: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "account": account.account,
        "resources": [{"uuid": r.uuid, "name": r.name} for r in account.resources],
        "limits": {name: f"{limit:f}" for name, limit in account.limits.items()},
        "used_of_limit": {m.name: sheet.use(account, m).share for m in sheet.measures},
        "usage": _amounts(sheet, account.figures),
    }
    if with_users:
        found["users"] = {user: _amounts(sheet, figures) for user, figures in sorted(account.users.items())}
    return found


def _amounts(sheet: Sheet, figures: Figures) -> dict[str, dict[str, str | None]]:
    """By month, then by component."""
    return {
        str(month): {
            m.name: None if (amount := figures.get((m.name, month))) is None else f"{amount:f}"
            for m in sheet.measures
        }
        for month in sheet.months
    }
