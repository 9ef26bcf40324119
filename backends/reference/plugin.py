# SPDX-License-Identifier: MIT
"""A backend of the reference in its virtual environment, as the registry knows backends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.findings import Findings, is_unusable, key_path
from agent.config.model import Offering
from agent.config.reading import read
from agent.config.schema import ClusterKeys
from agent.config.secret import secret_values
from agent.core.errors import ConfigError
from agent.core.model import Component
from backends.base import Backend, BackendContext, Parsed
from backends.reference.backend import ReferenceBackend
from backends.reference.child import Hosted
from backends.reference.venv import package_of, python_of


@dataclass(frozen=True)
class ReferencePlugin:
    """What `reporting_backend` names in an offering with `plugin_venv`."""

    offering: Offering
    name: str

    settings = ClusterKeys
    homes_on_head_node = False
    homes_unasked = False

    def parse(self, raw: Mapping[str, Any], path: str) -> Parsed:
        """Look at the environment too: it belongs to the settings. The keys of the plugin are its own to check."""
        findings = Findings()
        values = read(ClusterKeys, raw, path, findings, open_ended=True)
        venv = self.offering.plugin_venv
        assert venv
        try:
            python_of(venv)
            package_of(venv, self.name)
        except ConfigError as error:
            findings.error(key_path(self.offering.path, "plugin_venv"), str(error))
        return Parsed(None if is_unusable(findings.problems) else values, findings.problems)

    def missing(self, settings: ClusterKeys) -> str:
        return ""

    def connect(self, settings: ClusterKeys, context: BackendContext) -> Backend:
        offering = self.offering
        assert offering.plugin_venv
        hosted = Hosted(
            self.name,
            offering.plugin_venv,
            dict(offering.backend_settings),
            {name: _component(component) for name, component in offering.components.items()},
            tuple(secret_values(offering.backend_settings, offering.secret_settings)),
        )
        return ReferenceBackend(hosted, context, settings.cluster_name)


def _component(component: Component) -> dict[str, Any]:
    """Return a component as the reference gives it to backends: its keys as they are written."""
    keys = {
        "measured_unit": component.measured_unit,
        "accounting_type": str(component.accounting_type),
        "label": component.label,
        "unit_factor": component.unit_factor,
        "unit_factor_reporting": component.unit_factor_reporting,
        "limit": component.limit,
        "target_components": {name: {"factor": factor} for name, factor in component.targets.items()},
    }
    written = {key: value for key, value in keys.items() if value not in (None, {})}
    return {**component.extras, **component.waldur_fields, **written}
