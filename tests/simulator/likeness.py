# SPDX-License-Identifier: MIT
"""Compares a simulated answer with a recorded one: same keys, same types, same values where they matter.

Uuids may differ but must pair up one to one over the whole recording; times and host names are masked.
Of an error's text only the words of the domain count: states, component types, numbers, uuids.
"""

from __future__ import annotations

import re
from typing import Any

_UUID = re.compile(r"[0-9a-f]{32}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_HOST = re.compile(r"https?://[^/]+")
_WORD = re.compile(r"[a-z]+-[a-z]+(?:-[a-z]+)?|\b(?:OK|Erred|executing|ok|erred|gpu|cpu)\b|\d+")

# Values that depend on what else the recorded server had seen before, or that are our own wording.
_FREE_VALUES = frozenset(
    {
        "slug",
        "customer_slug",
        "project_slug",
        "user_slug",
        "token",
        "role_uuid",
        "role_description",
        "modified_by",
        "offering_count",
        "resources_count",
        "projects_count",
        "marketplace_resource_count",
        "order_count",
        "billing_price_estimate",
    }
)
# For some seconds the recorded server printed a copy of this order from before its last change, so
# nothing in it is a fact about the state at that moment.
_STALE_OBJECTS = frozenset({"creation_order"})
_TEXT_KEYS = frozenset({"detail", "status", "error_message"})


class Pairing:
    """The one-to-one map between recorded and simulated uuids, learnt while comparing."""

    def __init__(self) -> None:
        self._to_sim: dict[str, str] = {}
        self._to_recorded: dict[str, str] = {}

    def agree(self, recorded: str, simulated: str) -> bool:
        known = self._to_sim.setdefault(recorded, simulated)
        back = self._to_recorded.setdefault(simulated, recorded)
        return known == simulated and back == recorded

    def translate(self, text: str) -> str:
        """A recorded path or body with the simulated uuids in it, in either spelling."""
        for recorded, simulated in self._to_sim.items():
            text = text.replace(recorded, simulated).replace(_dashed(recorded), _dashed(simulated))
        return text


class Comparison:
    def __init__(self, pairing: Pairing, *, is_error: bool, has_older_rows: bool, shape_only: bool) -> None:
        self._pairing = pairing
        self._is_error = is_error
        self._has_older_rows = has_older_rows
        self._shape_only = shape_only
        self.differences: list[str] = []

    def compare(self, recorded: Any, simulated: Any, where: str = "$") -> None:
        if _kind(recorded) != _kind(simulated):
            self._note(where, f"{_short(recorded)} recorded, {_short(simulated)} simulated")
        elif isinstance(recorded, dict):
            self._objects(recorded, simulated, where)
        elif isinstance(recorded, list):
            self._lists(recorded, simulated, where)
        elif self._shape_only:
            return
        elif isinstance(recorded, str):
            self._texts(recorded, simulated, where)
        elif recorded != simulated and _last(where) not in _FREE_VALUES:
            self._note(where, f"{_short(recorded)} recorded, {_short(simulated)} simulated")

    def _objects(self, recorded: dict[str, Any], simulated: dict[str, Any], where: str) -> None:
        if _last(where) in _FREE_VALUES | _STALE_OBJECTS:
            return
        for key in sorted(recorded.keys() - simulated.keys()):
            self._note(f"{where}.{key}", "missing")
        for key in sorted(simulated.keys() - recorded.keys()):
            self._note(f"{where}.{key}", "invented")
        for key in recorded.keys() & simulated.keys():
            self.compare(recorded[key], simulated[key], f"{where}.{key}")

    def _lists(self, recorded: list[Any], simulated: list[Any], where: str) -> None:
        if self._has_older_rows and where == "$":
            # The recorded server had rows of earlier runs too; ours are like its last ones.
            recorded = recorded[-len(simulated) :] if simulated else []
        if len(recorded) != len(simulated):
            self._note(where, f"{len(recorded)} items recorded, {len(simulated)} simulated")
        for index, (one, other) in enumerate(zip(recorded, simulated, strict=False)):
            self.compare(one, other, f"{where}[{index}]")

    def _texts(self, recorded: str, simulated: str, where: str) -> None:
        if _last(where) in _FREE_VALUES:
            return
        if self._is_error or _last(where) in _TEXT_KEYS:
            lost = set(_WORD.findall(recorded)) - set(_WORD.findall(simulated))
            if lost and not _UUID.search(recorded):
                self._note(where, f"does not name {sorted(lost)}: {simulated!r}")
            return
        if self._masked(recorded) != self._masked(simulated):
            self._note(where, f"{recorded!r} recorded, {simulated!r} simulated")
        elif not self._paired(recorded, simulated):
            self._note(where, f"{recorded!r} is another object than {simulated!r}")

    def _paired(self, recorded: str, simulated: str) -> bool:
        pairs = zip(_UUID.findall(recorded), _UUID.findall(simulated), strict=True)
        agreements = [self._pairing.agree(one, other) for one, other in pairs]
        return all(agreements)

    def _masked(self, text: str) -> str:
        return _TIME.sub("TIME", _UUID.sub("UUID", _HOST.sub("HOST", text)))

    def _note(self, where: str, what: str) -> None:
        self.differences.append(f"{where}: {what}")


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


def _last(where: str) -> str:
    return re.sub(r"\[\d+\]$", "", where).rpartition(".")[2]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _dashed(uuid: str) -> str:
    return f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
