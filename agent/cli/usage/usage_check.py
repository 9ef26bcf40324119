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
    EXIT_CHANGES,
    config_option,
    exit_code_option,
    json_option,
    load_settings,
    offering_option,
    print_error,
    print_json,
    print_unserved,
    select_offerings,
)
from agent.cli.usage import check_text
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.core.periods import Month
from agent.plan.usage.check import AccountCheck
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
class OfferingCheck:
    """One offering: what was found, or the error that kept it from being checked."""

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

    def as_json(self) -> dict[str, Any]:
        """Amounts are text with two decimals, TRES-seconds whole numbers; null for what is unknown."""
        about: dict[str, Any] = {"offering": self.offering.uuid, "name": self.offering.name}
        found = self.checked
        if found is None:
            return {**about, "error": str(self.error)}
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
                    "terminated": line.has_ended,
                    **_line(line),
                    "differs": line.differs,
                    "command": (found.commands or {}).get(line.account),
                }
                for line in comparison.lines
            ],
            "total": _line(comparison.total),
            "notes": list(found.notes),
        }


@click.command()
@config_option
@offering_option
@click.option(
    "--month", type=BillingMonth(), help="This month, written 2026-10. Default: the last that has ended."
)
@click.option("--account", default="", help="This account only.")
@json_option
@exit_code_option("Waldur or sreport has other figures")
def command(
    config_file: Path | None,
    offering_uuid: str | None,
    month: Month | None,
    account: str,
    as_json: bool,
    exit_code: bool,
) -> int:
    """Count one month in every way there is, and show what differs: as the reference did, as jobs asked for
    (ReqTRES), as they were given (AllocTRES), by sreport, and in Waldur.
    """
    settings = load_settings(config_file)
    served = [o for o in select_offerings(settings, offering_uuid) if o.backend_of(Mode.REPORT)]
    if month and month > Month.of(datetime.now(settings.timezone)):
        raise click.BadParameter(f"{month} has not begun", param_hint="--month")
    checks = [check_offering(settings, offering, month, account) for offering in served]
    if not served:
        print_unserved(Mode.REPORT)
    if as_json:
        print_json({"offerings": [each.as_json() for each in checks]})
    for each in checks:
        if error := each.error or (each.checked and each.checked.waldur):
            print_error(each.offering, error)
        if each.checked and not as_json:
            check_text.show(each.checked)
    if any(each.failed for each in checks):
        return 1
    return EXIT_CHANGES if exit_code and any(each.differs for each in checks) else 0


def check_offering(
    settings: Settings, offering: Offering, month: Month | None, account: str
) -> OfferingCheck:
    """Return the check of one offering, or the error that kept it from being made: it stops no other offering."""
    try:
        site = connect(settings, offering, Mode.REPORT)
        return OfferingCheck(offering, usage_check.check(site, month, account=account))
    except SiteAgentError as error:
        return OfferingCheck(offering, error=error)


def _line(line: AccountCheck) -> dict[str, Any]:
    """Return TRES-seconds and amounts of one account, or of all, in each way of counting."""
    tres_seconds = {
        tres: {
            **{str(way): count for way, count in seconds.counts.items()},
            "requeues": seconds.requeues,
            "last_second": seconds.border,
        }
        for tres, seconds in line.seconds.items()
    }
    amounts = {
        name: {
            **{str(way): None if a is None else f"{a:f}" for way, a in found.amounts.items()},
            "waldur": None if found.told is None else f"{found.told:f}",
            "waldur_would_move_by": f"{found.moves:f}",
        }
        for name, found in line.amounts.items()
    }
    return {"tres_seconds": tres_seconds, "amounts": amounts}
