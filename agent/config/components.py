# SPDX-License-Identifier: MIT
"""`backend_components`: what Waldur bills, by name, with the factors that lead to the cluster's units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.config.backend_settings import note_policy_keys
from agent.config.field_types import shown
from agent.config.findings import Findings, below, has_errors, key_name
from agent.config.schema import ALL_MODES, COMPONENT, POLICY_KEYS, TARGET, checked
from agent.core.model import AccountingType, Component

# Waldur 8 refuses component types and units that do not fit these.
_WALDUR_TYPE = re.compile(r"[A-Za-z0-9_/:-]{1,50}")
_MAX_UNIT_LENGTH = 30
_LIMIT_PERIODS = ("annual", "month", "quarterly", "total")
# As spending limits call them.
_PERIOD_ALIASES = {"quarter": "quarterly", "year": "annual"}
_OWN_KEYS = frozenset(
    {
        "measured_unit",
        "accounting_type",
        "label",
        "unit_factor",
        "unit_factor_reporting",
        "limit",
        "target_components",
    }
)
_WALDUR_KEYS = frozenset(COMPONENT.fields) - _OWN_KEYS
_KNOWN_KEYS = COMPONENT.fields.keys() | POLICY_KEYS


def read_components(section: Mapping[Any, Any], path: str, findings: Findings) -> Mapping[str, Component]:
    """Return the components by name; keys that only a plugin may know are judged with its own."""
    components: dict[str, Component] = {}
    for name, body in section.items():
        place = below(path, key_name(name))
        if not isinstance(name, str):
            findings.error(place, f"the name {shown(name)} is not text: put it in quotes")
            continue
        if not isinstance(body, Mapping | None):
            findings.error(place, f"it is {shown(body)}; a map of keys is needed")
            continue
        body = body or {}
        note_policy_keys(body, place, findings)
        component = _component(name, body, place, findings)
        if component is not None:
            components[name] = component
    return MappingProxyType(components)


def _component(name: str, body: Mapping[Any, Any], path: str, findings: Findings) -> Component | None:
    noted_before = len(findings.problems)
    values = checked(COMPONENT, body, path, findings=findings, open_ended=True)
    targets: dict[str, float] = {}
    for target, settings in values["target_components"].items():
        place = below(below(path, "target_components"), key_name(target))
        if isinstance(target, str) and isinstance(settings, Mapping | None):
            targets[target] = checked(TARGET, settings or {}, place, findings=findings)["factor"]
        else:
            what = "a name in quotes with a map of keys is needed"
            findings.stop(place, f"it is {shown(target)}: {shown(settings)}; {what}", ALL_MODES)
    if not _WALDUR_TYPE.fullmatch(name):
        findings.warn(path, "Waldur takes component names of letters, digits and `_ - / :`, 50 at most")
    if len(values["measured_unit"] or "") > _MAX_UNIT_LENGTH:
        findings.warn(below(path, "measured_unit"), f"Waldur takes at most {_MAX_UNIT_LENGTH} characters")
    period = values["limit_period"] = _PERIOD_ALIASES.get(values["limit_period"], values["limit_period"])
    if period and period not in _LIMIT_PERIODS:
        findings.warn(
            below(path, "limit_period"),
            f"Waldur does not know {shown(period)}; use one of {', '.join(_LIMIT_PERIODS)}",
        )
    noted = findings.problems[noted_before:]
    if has_errors(noted) or any(problem.stops == ALL_MODES for problem in noted):
        return None
    return Component(
        name=name,
        measured_unit=values["measured_unit"],
        accounting_type=AccountingType(values["accounting_type"]),
        label=values["label"],
        unit_factor=values["unit_factor"],
        unit_factor_reporting=values["unit_factor_reporting"],
        limit=values["limit"],
        targets=MappingProxyType(targets),
        waldur_fields=MappingProxyType({k: values[k] for k in sorted(_WALDUR_KEYS) if values[k] is not None}),
        extras=MappingProxyType({key_name(k): v for k, v in body.items() if k not in _KNOWN_KEYS}),
    )
