# SPDX-License-Identifier: MIT
"""`usage`: what each account has used, month by month, in Waldur's units and against its limits; as a table, as JSON,
or as a page with charts. Reads the cluster and Waldur, changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from agent.cli.options import (
    chosen,
    complain,
    config_option,
    json_option,
    offering_option,
    print_json,
    say_unserved,
    settings_from,
)
from agent.cli.usage import page as usage_page
from agent.cli.usage import table
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.plan.usage.figures import AccountFigures, Figures, Sheet
from agent.run.site import connect
from agent.run.usage import view as usage_view
from agent.run.usage.view import UsageView

MOST_MONTHS = 36


@dataclass(frozen=True, slots=True)
class Seen:
    """One offering: its figures, or what kept them from being read."""

    offering: Offering
    view: UsageView | None = None
    error: SiteAgentError | None = None

    @property
    def is_whole(self) -> bool:
        return self.view is not None and self.view.waldur is None


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
    config_file: Path | None, offering_uuid: str | None, as_json: bool, page: Path | None, **wanted: Any
) -> int:
    """Show what each account has used, month by month, in Waldur's units, against its limits. Exit code 1 when the
    cluster or Waldur did not answer.
    """
    settings = settings_from(config_file)
    served = [o for o in chosen(settings, offering_uuid) if o.backend_of(Mode.REPORT)]
    seen = [_seen(settings, offering, wanted["months"]) for offering in served]
    if not served:
        say_unserved(Mode.REPORT)
    views = [each.view for each in seen if each.view]
    if as_json:
        print_json({"offerings": [_document(each, with_users=wanted["with_users"]) for each in seen]})
    elif page is None:
        for view in views:
            table.show(view, with_users=wanted["with_users"])
    _tell(seen)
    if page is not None and views:
        failed = {each.offering.name: str(each.error) for each in seen if each.error}
        usage_page.write(page, views, failed, with_users=wanted["with_users"])
        click.echo(f"written to {page}", err=True)
    return 0 if all(each.is_whole for each in seen) else 1


def _seen(settings: Settings, offering: Offering, months: int) -> Seen:
    try:
        return Seen(offering, usage_view.view(connect(settings, offering, Mode.REPORT), months))
    except SiteAgentError as error:
        return Seen(offering, error=error)


def _tell(seen: list[Seen]) -> None:
    """What is missing, on stderr."""
    for each in seen:
        if each.error:
            complain(each.offering, each.error)
        elif each.view and each.view.waldur:
            complain(each.offering, each.view.waldur)
            click.echo(
                f"{each.offering.name}: without Waldur these are all accounts of the cluster, in the units of the "
                "configuration; names and limits are unknown",
                err=True,
            )


def _document(seen: Seen, *, with_users: bool) -> dict[str, Any]:
    """Amounts as text with two decimals, as Waldur is told them; null for what is unknown."""
    about: dict[str, Any] = {"offering": seen.offering.uuid, "name": seen.offering.name}
    view = seen.view
    if view is None:
        return {**about, "error": str(seen.error)}
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
