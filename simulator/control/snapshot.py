# SPDX-License-Identifier: MIT
"""Turn records into plain JSON for the control API, and JSON values back into a record's fields."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from simulator.world.records import JsonObject
from simulator.world.store import Store
from simulator.world.table import Table


def to_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return to_json(asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {str(name): to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset | Table):
        return [to_json(item) for item in value]
    return value


def whole_state(store: Store) -> JsonObject:
    """Return every table of the store, by name, with the clock and the settings."""
    tables = {name: to_json(value) for name, value in vars(store).items() if isinstance(value, Table)}
    return {
        "age": store.age.value,
        "now": store.clock.now().isoformat(),
        "settings": to_json(store.settings),
        "background_jobs": store.background.pending(),
        "logs": to_json(store.logs),
        "command_results": to_json(store.command_results),
        **tables,
    }


def change(record: Any, values: JsonObject) -> None:
    """Set fields by name; strings become the enum or the date that the field holds."""
    known = {f.name: str(f.type) for f in fields(record)}
    for name, value in values.items():
        if name not in known:
            raise ValueError(f"{type(record).__name__} has no field {name}")
        setattr(record, name, _converted(getattr(record, name), known[name], value))


def _converted(current: Any, declared: str, value: Any) -> Any:
    if isinstance(current, Enum) and isinstance(value, str):
        return type(current)(value)
    if isinstance(current, Decimal):
        return Decimal(str(value))
    if isinstance(value, str) and declared.startswith("datetime"):
        return datetime.fromisoformat(value)
    if isinstance(value, str) and declared.startswith("date"):
        return date.fromisoformat(value)
    return value
