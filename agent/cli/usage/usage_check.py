# SPDX-License-Identifier: MIT
"""`usage-check`: one month as the reference counted it, as jobs asked, as they were given, as sreport has it, and as
it was reported to Waldur: do bills move, by how much, and why? Reads the cluster and Waldur, changes neither.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from agent.cli.commands.shared import EXIT_CHANGES
from agent.cli.options import Outcome, amount_text, of_each, print_errors, print_json, served_offerings
from agent.cli.settings import load_settings
from agent.cli.usage import check_text
from agent.config.model import Mode
from agent.core.periods import Month
from agent.plan.usage.check import AccountCheck
from agent.run.site import connect
from agent.run.usage import check as usage_check
from agent.run.usage.check import Checked


def command(
    config_file: Path | None,
    offering_uuid: str | None,
    month: Month | None,
    account: str,
    as_json: bool,
    exit_code: bool,
) -> int:
    settings = load_settings(config_file)
    served = served_offerings(settings, offering_uuid, Mode.REPORT)
    if month and month > Month.of(datetime.now(settings.timezone)):
        raise click.BadParameter(f"{month} has not begun", param_hint="--month")
    checks = of_each(
        served, lambda each: usage_check.check(connect(settings, each, Mode.REPORT), month, account=account)
    )
    if as_json:
        print_json({"offerings": [_document(each) for each in checks]})
    print_errors(
        (each.offering, each.error or (each.found.waldur if each.found else None)) for each in checks
    )
    for each in checks:
        if each.found and not as_json:
            check_text.show(each.found)
    if any(each.found is None or each.found.failed for each in checks):
        return 1
    comparisons = [each.found.comparison for each in checks if each.found]
    # Waldur or sreport has other figures.
    differs = any(found.moves or found.equals_summary is False for found in comparisons)
    return EXIT_CHANGES if exit_code and differs else 0


def _document(outcome: Outcome[Checked]) -> dict[str, Any]:
    """Amounts are text with two decimals, TRES-seconds whole numbers; null for what is unknown."""
    found = outcome.found
    if found is None:
        return outcome.as_json()
    comparison = found.comparison
    return {
        **outcome.as_json(),
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
            **{str(way): amount_text(amount) for way, amount in found.amounts.items()},
            "waldur": amount_text(found.reported),
            "waldur_would_move_by": f"{found.moves:f}",
        }
        for name, found in line.amounts.items()
    }
    return {"tres_seconds": tres_seconds, "amounts": amounts}
