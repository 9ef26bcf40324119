# SPDX-License-Identifier: MIT
"""`backend_components`: what Waldur bills, by name, with the factors that lead to the cluster's units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.config.field_types import displayed, key_name
from agent.config.findings import Findings, is_unusable, key_path
from agent.config.keys import keys_of
from agent.config.reading import read
from agent.config.schema import STOPS_ALL, ComponentKeys, TargetKeys, WaldurComponentKeys
from agent.core.components import AccountingType, Component

# Waldur 8 refuses component types and units that do not fit these.
_WALDUR_TYPE = re.compile(r"[A-Za-z0-9_/:-]{1,50}")
_MAX_UNIT_LENGTH = 30
_LIMIT_PERIODS = ("annual", "month", "quarterly", "total")
# As spending limits call them.
_PERIOD_ALIASES = {"quarter": "quarterly", "year": "annual"}


def read_components(
    section: Mapping[Any, Any], path: str, findings: Findings
) -> tuple[Mapping[str, Component], Mapping[str, Component]]:
    """Return the components by name, and drafts of those that cannot be used. Keys that only a plugin may know are
    judged with its own, in drafts too.
    """
    components: dict[str, Component] = {}
    drafts: dict[str, Component] = {}
    for name, body in section.items():
        place = key_path(path, key_name(name))
        if not isinstance(name, str):
            findings.error(place, f"the name {displayed(name)} is not text: put it in quotes")
            continue
        if not isinstance(body, Mapping | None):
            findings.error(place, f"it is {displayed(body)}; a map of keys is needed")
            drafts[name] = _component(name, {}, place, Findings())
            continue
        noted_before = len(findings.problems)
        component = _component(name, body or {}, place, findings)
        is_draft = is_unusable(findings.problems[noted_before:])
        (drafts if is_draft else components)[name] = component
    return MappingProxyType(components), MappingProxyType(drafts)


def _component(name: str, body: Mapping[Any, Any], path: str, findings: Findings) -> Component:
    values = read(ComponentKeys, body, path, findings, open_ended=True)
    targets: dict[str, float] = {}
    for target, settings in values.target_components.items():
        place = key_path(key_path(path, "target_components"), key_name(target))
        if isinstance(target, str) and isinstance(settings, Mapping | None):
            targets[target] = read(TargetKeys, settings or {}, place, findings).factor
        else:
            what = "a name in quotes with a map of keys is needed"
            findings.refuse(place, f"it is {displayed(target)}: {displayed(settings)}; {what}", STOPS_ALL)
    if not _WALDUR_TYPE.fullmatch(name):
        findings.warn(path, "Waldur takes component names of letters, digits and `_ - / :`, 50 at most")
    if len(values.measured_unit) > _MAX_UNIT_LENGTH:
        findings.warn(key_path(path, "measured_unit"), f"Waldur takes at most {_MAX_UNIT_LENGTH} characters")
    period = _PERIOD_ALIASES.get(values.limit_period or "", values.limit_period)
    if period and period not in _LIMIT_PERIODS:
        findings.warn(
            key_path(path, "limit_period"),
            f"Waldur does not know {displayed(period)}; use one of {', '.join(_LIMIT_PERIODS)}",
        )
    for_waldur = {key: getattr(values, key) for key in sorted(keys_of(WaldurComponentKeys))}
    for_waldur["limit_period"] = period
    return Component(
        name=name,
        measured_unit=values.measured_unit,
        accounting_type=AccountingType(values.accounting_type or AccountingType.USAGE),
        label=values.label,
        unit_factor=values.unit_factor,
        unit_factor_reporting=values.unit_factor_reporting,
        limit=values.limit,
        targets=MappingProxyType(targets),
        waldur_fields=MappingProxyType({k: v for k, v in for_waldur.items() if v is not None}),
        extras=MappingProxyType({key_name(k): v for k, v in body.items() if k not in keys_of(ComponentKeys)}),
    )
