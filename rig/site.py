# SPDX-License-Identifier: MIT
"""A whole site for tests: a simulated Waldur, a real SLURM, and the configuration that joins them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.config import load
from agent.config.model import Mode, Settings
from agent.run import site as sites
from agent.run.site import Site
from simulator.server.waldur import SimulatedWaldur

COMPONENTS = {
    "cpu": {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU", "unit_factor": 60},
    "mem": {"measured_unit": "GB-hours", "accounting_type": "limit", "label": "Memory", "unit_factor": 61440},
}
# In C where there is one: in Python it takes 0.7 ms for each site.
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
# Holds the settings `rest_api`, in JSON, where sites of tests are to go through slurmrestd.
REST_API = "SLURM_REST_API"


def configuration(
    waldur: SimulatedWaldur,
    folder: Path,
    *,
    backend: Mapping[str, Any] | None = None,
    components: Mapping[str, Any] | None = None,
    **offering: Any,
) -> Path:
    """Write a configuration file for the seeded offering and return its path."""
    by_rest: dict[str, Any] = {}
    if access := os.environ.get(REST_API):
        by_rest = {"execution_mode": "rest", "cluster_name": "test", "rest_api": json.loads(access)}
    document = {
        "state_dir": str(folder / "state"),
        "offerings": [
            {
                "name": "Test SLURM",
                "waldur_api_url": waldur.url,
                "waldur_api_token": waldur.token(),
                "waldur_offering_uuid": waldur.seed.offering_uuid,
                "username_management_backend": "base",
                "order_processing_backend": "slurm",
                "backend_type": "slurm",
                "backend_settings": {
                    # The fixture of the real SLURM puts its commands on PATH.
                    **({"slurm_bin_path": ""} if "SLURM_CONF" in os.environ else {}),
                    **by_rest,
                    "default_account": "root",
                    "customer_prefix": "c_",
                    "project_prefix": "p_",
                    "allocation_prefix": "a_",
                    "default_account_policy": "none",
                    **(backend or {}),
                },
                "backend_components": dict(components or COMPONENTS),
                **offering,
            }
        ],
    }
    path = folder / "site.yaml"
    path.write_text(yaml.dump(document, Dumper=DUMPER), encoding="utf-8")
    path.chmod(0o600)
    return path


def settings_of(path: Path) -> Settings:
    """Return the settings. Of the environment they see only where tests lock, which is no folder of the host."""
    name = "WALDUR_SITE_AGENT_LOCK_DIR"
    return load.require(path, {name: os.environ.get(name, "")})


def site_of(path: Path) -> Site:
    settings = settings_of(path)
    return sites.connect(settings, settings.offerings[0], Mode.ORDER_PROCESS)
