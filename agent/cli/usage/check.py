# SPDX-License-Identifier: MIT
"""`usage-check`: one month as the reference counted it, as jobs asked, as they were given, as sreport has it, and as
Waldur was told: do bills move, by how much, and why? Reads the cluster and Waldur, changes neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
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
from agent.cli.plan import EXIT_CHANGES
from agent.cli.usage import check_text
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.core.periods import Month
from agent.plan.usage.check import Amounts, Line, Seconds
from agent.run.site import connect
from agent.run.usage import check as usage_check
from agent.run.usage.check import Checked


class BillingMonth(click.ParamType[Month]):
    name = "month"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Month:
        try:
            return value if isinstance(value, Month) else Month.parse(str(value).strip())
        except ValueError:
            self.fail(f"{value!r} is no month; write it as 2026-10", param, ctx)


@dataclass(frozen=True, slots=True)
class Seen:
    """One offering: what was found, or what kept it from being looked at."""

    offering: Offering
    checked: Checked | None = None
    error: SiteAgentError | None = None

    @property
    def failed(self) -> bool:
        return self.checked is None or self.checked.failed

    @property
    def differs(self) -> bool:
        """Waldur or sreport has other figures."""
        found = self.checked.comparison if self.checked else None
        return found is not None and (found.moves or found.equals_summary is False)


@click.command()
@config_option
@offering_option
@click.option(
    "--month", type=BillingMonth(), help="This month, written 2026-10. Default: the last that has ended."
)
@click.option("--account", default="", help="This account only.")
@json_option
@click.option("--exit-code", is_flag=True,
              help=f"End with {EXIT_CHANGES} when Waldur or sreport has other figures.")  # fmt: skip
def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, exit_code: bool, **wanted: Any
) -> int:
    """Count one month in every way there is, and show what differs: as the reference did, as jobs asked for
    (ReqTRES), as they were given (AllocTRES), by sreport, and in Waldur.
    """
    settings = settings_from(config_file)
    served = [o for o in chosen(settings, offering_uuid) if o.backend_of(Mode.REPORT)]
    if wanted["month"] and wanted["month"] > Month.of(datetime.now(settings.timezone)):
        raise click.BadParameter(f"{wanted['month']} has not begun", param_hint="--month")
    seen = [_seen(settings, offering, wanted["month"], wanted["account"]) for offering in served]
    if not served:
        say_unserved(Mode.REPORT)
    if as_json:
        print_json({"offerings": [_document(each) for each in seen]})
    for each in seen:
        if each.error:
            complain(each.offering, each.error)
        if each.checked and each.checked.waldur:
            complain(each.offering, each.checked.waldur)
        if each.checked and not as_json:
            check_text.show(each.checked)
    if any(each.failed for each in seen):
        return 1
    return EXIT_CHANGES if exit_code and any(each.differs for each in seen) else 0


def _seen(settings: Settings, offering: Offering, month: Month | None, account: str) -> Seen:
    try:
        site = connect(settings, offering, Mode.REPORT)
        return Seen(offering, usage_check.check(site, month, account=account))
    except SiteAgentError as error:
        return Seen(offering, error=error)


def _document(seen: Seen) -> dict[str, Any]:
    """Amounts as text with two decimals, TRES-seconds as whole numbers; null for what is unknown."""
    about: dict[str, Any] = {"offering": seen.offering.uuid, "name": seen.offering.name}
    found = seen.checked
    if found is None:
        return {**about, "error": str(seen.error)}
    comparison = found.comparison
    return {
        **about,
        "error": str(found.waldur) if found.waldur else None,
        "cluster": found.cluster,
        "month": str(found.month),
        "has_ended": found.is_closed,
        "zone": found.zone,
        "usage_source": found.source,
        "allocated_equals_sreport": comparison.equals_summary,
        "sreport_unknown": found.summary_unknown or None,
        "waldur_would_move": comparison.moves,
        "components": [{"name": m.name, "label": m.label, "unit": m.unit} for m in found.measures],
        "accounts": [
            {
                "account": line.account,
                "resource": line.resource or None,
                **_line(line),
                "differs": line.differs,
                "command": (found.commands or {}).get(line.account),
            }
            for line in comparison.lines
        ],
        "total": _line(comparison.total),
        "notes": list(found.notes),
    }


def _line(line: Line) -> dict[str, Any]:
    return {
        "tres_seconds": {tres: _seconds(seconds) for tres, seconds in line.seconds.items()},
        "amounts": {name: _amounts(amounts) for name, amounts in line.amounts.items()},
    }


def _seconds(seconds: Seconds) -> dict[str, int | None]:
    counted = {str(way): count for way, count in seconds.counts.items()}
    return {**counted, "requeues": seconds.requeues, "last_second": seconds.border}


def _amounts(amounts: Amounts) -> dict[str, str | None]:
    counted = {str(way): None if a is None else f"{a:f}" for way, a in amounts.amounts.items()}
    told = None if amounts.told is None else f"{amounts.told:f}"
    return {**counted, "waldur": told, "waldur_would_move_by": f"{amounts.moves:f}"}
