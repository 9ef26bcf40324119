# SPDX-License-Identifier: MIT
"""A view of usage as JSON and back, for pages of a process that may read neither Waldur nor the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from agent.core.account_names import fold
from agent.core.errors import SiteAgentError
from agent.core.model import Resource, ResourceState
from agent.core.periods import Month
from agent.core.usage import UsageSource
from agent.plan.usage.figures import AccountFigures, Figures, Measure, Sheet
from agent.run.usage.view import UsageView

# What reading a damaged document, or one of another version, raises.
DAMAGED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
NOT_UNDERSTOOD = "what a worker of another version has left is not understood: look again"
NAMES = ("uuid", "name", "slug", "project_name", "customer_name")


def as_json(view: UsageView) -> dict[str, Any]:
    """Return a view without the shares of users."""
    sheet = view.sheet
    return {
        "name": view.name,
        "uuid": view.uuid,
        "cluster": view.cluster,
        "source": view.source,
        "zone": view.zone,
        "taken": view.taken.isoformat(),
        "unanswered": [str(month) for month in view.unanswered],
        "notes": list(view.notes),
        "waldur": str(view.waldur) if view.waldur else "",
        "charged": view.charged,
        "measures": [asdict(each) for each in sheet.measures],
        "months": [str(month) for month in sheet.months],
        "accounts": [_account(sheet, each) for each in sheet.accounts],
        "others": [_account(sheet, each) for each in sheet.others],
    }


def from_json(document: Mapping[str, Any]) -> UsageView:
    """Return the view. Raises one of `DAMAGED` where it is none."""
    measures = tuple(Measure(**each) for each in document["measures"])
    months = tuple(map(Month.parse, document["months"]))
    sheet = Sheet(
        measures,
        months,
        tuple(_figures(measures, months, document["accounts"])),
        tuple(_figures(measures, months, document["others"])),
    )
    return UsageView(
        name=document["name"],
        uuid=document["uuid"],
        cluster=document["cluster"],
        sheet=sheet,
        source=UsageSource(document["source"]),
        zone=document["zone"],
        taken=datetime.fromisoformat(document["taken"]),
        unanswered=tuple(map(Month.parse, document["unanswered"])),
        notes=tuple(document["notes"]),
        waldur=SiteAgentError(document["waldur"]) if document["waldur"] else None,
        charged=document["charged"],
    )


def _account(sheet: Sheet, each: AccountFigures) -> dict[str, Any]:
    """Amounts are one list for each measure, a text or null for each month."""
    resources = [{name: getattr(r, name) for name in NAMES} | {"state": r.state} for r in each.resources]
    amounts = [[_text(amount) for amount in sheet.amounts(each.figures, m)] for m in sheet.measures]
    limits = {name: _text(limit) for name, limit in each.limits.items()}
    return {"account": each.account, "resources": resources, "amounts": amounts, "limits": limits}


def _figures(
    measures: tuple[Measure, ...], months: tuple[Month, ...], rows: Iterable[Mapping[str, Any]]
) -> Iterable[AccountFigures]:
    keys = [(measure.name, month) for measure in measures for month in months]
    for row in rows:
        resources = (Resource(**{**each, "state": ResourceState(each["state"])}) for each in row["resources"])
        amounts = (amount for of_measure in row["amounts"] for amount in of_measure)
        figures: Figures = {
            key: Decimal(amount) for key, amount in zip(keys, amounts, strict=True) if amount is not None
        }
        limits = {name: Decimal(limit) for name, limit in row["limits"].items()}
        yield AccountFigures(row["account"], tuple(resources), figures, limits=limits)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


@dataclass(frozen=True, slots=True)
class ComponentUsage:
    """What one account has used of a component, by month, the newest first; None for what is unknown."""

    label: str
    unit: str
    amounts: tuple[Decimal | None, ...]
    limit: Decimal | None


def of_account(document: Mapping[str, Any], account: str) -> tuple[list[str], list[ComponentUsage]]:
    """Return the months, the newest first, and what an account has used; nothing where the document has none of it.
    Raises one of `DAMAGED`.
    """
    rows = document.get("accounts", ())
    row = next((each for each in rows if fold(each["account"]) == account), None)
    if row is None:
        return [], []
    found = [
        ComponentUsage(
            measure["label"],
            measure["unit"],
            tuple(None if amount is None else Decimal(amount) for amount in reversed(amounts)),
            Decimal(row["limits"][measure["name"]]) if measure["name"] in row["limits"] else None,
        )
        for measure, amounts in zip(document["measures"], row["amounts"], strict=True)
    ]
    return list(reversed(document["months"])), found
