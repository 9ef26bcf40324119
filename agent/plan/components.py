# SPDX-License-Identifier: MIT
"""Which components of an offering must be made or changed in Waldur so that it has what is configured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.core.model import AccountingType, Component, WaldurComponent


class Change(StrEnum):
    CREATE = "created"
    UPDATE = "updated"
    LEAVE = "unchanged"


@dataclass(frozen=True, slots=True)
class ComponentChange:
    """What one component of the offering needs in Waldur."""

    name: str
    change: Change
    # What Waldur must be sent.
    body: Mapping[str, Any]
    # By field: what is there, and what is wanted.
    differences: Mapping[str, tuple[Any, Any]]


def changes(components: Iterable[Component], present: Iterable[WaldurComponent]) -> list[ComponentChange]:
    """Return one change per configured component; components that only Waldur has are not touched.

    Waldur is sent what the reference sends: `unit_factor` never, optional fields only when they are configured.
    """
    by_type = {component.type: component for component in present}
    found = []
    for component in components:
        limit = component.limit
        body = {
            "type": component.name,
            "name": component.label,
            "measured_unit": component.measured_unit,
            "billing_type": component.accounting_type.value,
            "limit_amount": int(limit) if limit is not None else None,
            **({"is_prepaid": True} if component.accounting_type is AccountingType.ONE else {}),
            **component.waldur_fields,
        }
        there = by_type.get(component.name)
        if there is None:
            missing = {key: (None, value) for key, value in body.items()}
            found.append(ComponentChange(component.name, Change.CREATE, body, missing))
            continue
        # A server may take a period that it is not sent for one that is taken away.
        if "limit_period" not in body and there.fields.get("limit_period"):
            body = {**body, "limit_period": there.fields["limit_period"]}
        differences = {
            key: (there.fields.get(key), value)
            for key, value in body.items()
            # What an old server does not have, it cannot be given.
            if key in there.fields and not _same(there.fields[key], value)
        }
        change = Change.UPDATE if differences else Change.LEAVE
        found.append(ComponentChange(component.name, change, {"uuid": there.uuid, **body}, differences))
    return found


def _same(there: Any, wanted: Any) -> bool:
    """Return whether two values are the same; Waldur has some numbers as text."""
    if there == wanted or (there in (None, "") and wanted in (None, "")):
        return True
    try:
        return float(there) == float(wanted)
    except (TypeError, ValueError):
        return False
