# SPDX-License-Identifier: MIT
"""The configuration of the oldest service: one offering in environment variables, components in a TRES file.

Builds the tree that a YAML file would give, so that one schema judges both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.config import field_types
from agent.config.environment import variable
from agent.config.findings import Findings
from agent.config.model import Mode, Problem
from agent.config.offering import BACKEND_KEYS, NOTHING_SCHEDULED
from agent.config.sources import read_yaml

API_VARIABLES = ("WALDUR_API_URL", "WALDUR_API_TOKEN", "WALDUR_OFFERING_UUID")
CONFIG_FILE = "WALDUR_CONFIG_FILE_PATH"
DIRECTION = "WALDUR_SYNC_DIRECTION"
MODE = "WALDUR_SITE_AGENT_MODE"
USERNAME_SOURCE = "WALDUR_SLURM_USERNAME_SOURCE"
TRES_FILE = "SLURM_TRES_CONFIG_PATH"
# Seen from the cluster: pull fetches orders from Waldur, push sends usage and members to it.
DIRECTIONS = {"pull": (Mode.ORDER_PROCESS,), "push": (Mode.REPORT, Mode.MEMBERSHIP_SYNC)}
DEPLOYMENT_TYPES = ("docker", "native")
SETTINGS = {
    "default_account": ("SLURM_DEFAULT_ACCOUNT", "waldur"),
    "customer_prefix": ("SLURM_CUSTOMER_PREFIX", "hpc_"),
    "project_prefix": ("SLURM_PROJECT_PREFIX", "hpc_"),
    "allocation_prefix": ("SLURM_ALLOCATION_PREFIX", "hpc_"),
    "allocation_name_max_len": ("SLURM_ALLOCATION_NAME_MAX_LEN", "34"),
}
_SITE_KEYS = frozenset({"backend_type", "backend_settings", "backend_components"})
_HOMES_YES = frozenset({"yes", "true"})
_VARIABLE_OF = {
    "offerings[0].name": "WALDUR_OFFERING_NAME",
    "offerings[0].waldur_api_url": "WALDUR_API_URL",
    "offerings[0].waldur_api_token": "WALDUR_API_TOKEN",
    "offerings[0].waldur_offering_uuid": "WALDUR_OFFERING_UUID",
    "offerings[0].verify_ssl": "REQUESTS_VERIFY_SSL",
    "offerings[0].backend_components": TRES_FILE,
    **{f"offerings[0].backend_settings.{key}": name for key, (name, _) in SETTINGS.items()},
}


def configures(environ: Mapping[str, str]) -> bool:
    """Return whether the variables name an offering and the way to it: then no file is needed."""
    return all(environ.get(name) for name in API_VARIABLES)


def tree_of(environ: Mapping[str, str], findings: Findings) -> Mapping[str, Any]:
    """Return the whole configuration, as a YAML file would give it."""
    offering = {
        "name": environ.get("WALDUR_OFFERING_NAME") or "Single offering",
        "waldur_api_url": environ.get("WALDUR_API_URL", ""),
        "waldur_api_token": environ.get("WALDUR_API_TOKEN", ""),
        "waldur_offering_uuid": environ.get("WALDUR_OFFERING_UUID", ""),
        **_site(environ, findings),
    }
    return {"offerings": [offering]}


def completed(tree: Mapping[Any, Any], environ: Mapping[str, str], findings: Findings) -> Mapping[Any, Any]:
    """Complete a file of the oldest service: it names offerings and tokens only, the rest comes from the variables."""
    entries = tree.get("offerings")
    if not isinstance(entries, list) or not any(_is_bare(entry) for entry in entries):
        return tree
    site = _site(environ, findings)
    return {**tree, "offerings": [{**site, **entry} if _is_bare(entry) else entry for entry in entries]}


def in_variables(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the same problems under the names of the variables that they come from."""
    renamed = []
    for problem in problems:
        for prefix, name in _VARIABLE_OF.items():
            if problem.path == prefix or problem.path.startswith(f"{prefix}."):
                problem = replace(problem, path=name + problem.path[len(prefix) :])
                break
        renamed.append(problem)
    return tuple(renamed)


def without_echo(problems: Iterable[Problem]) -> Iterable[Problem]:
    """Leave out the advice for YAML's keys where the variable that says which modes run is wrong or not set."""
    several = tuple(problems)
    if not any(problem.path in (DIRECTION, MODE) for problem in several):
        return several
    return (problem for problem in several if problem.message != NOTHING_SCHEDULED)


def _is_bare(entry: object) -> bool:
    return isinstance(entry, Mapping) and _SITE_KEYS.isdisjoint(entry)


def _site(environ: Mapping[str, str], findings: Findings) -> dict[str, Any]:
    """Return the part of an offering that was never in a file."""
    backend_type = environ.get("WALDUR_BACKEND_TYPE") or "slurm"
    settings: dict[str, Any] = {key: environ.get(name) or usual for key, (name, usual) in SETTINGS.items()}
    makes_homes = environ.get("ENABLE_USER_HOMEDIR_ACCOUNT_CREATION", "").strip().lower() in _HOMES_YES
    settings["enable_user_homedir_account_creation"] = makes_homes
    # The oldest service called the commands by their bare names, in the container as on the head node.
    settings["slurm_bin_path"] = ""
    deployment = variable(
        environ,
        "SLURM_DEPLOYMENT_TYPE",
        field_types.choice(*DEPLOYMENT_TYPES),
        default="docker",
        findings=findings,
    )
    if deployment == "docker":
        settings["command_prefix"] = ["docker", "exec", environ.get("SLURM_CONTAINER_NAME") or "slurmctld"]
    if environ.get(USERNAME_SOURCE):
        findings.warn(USERNAME_SOURCE, "it has no effect: usernames are those of Waldur's offering users")
    components: Mapping[Any, Any] = {}
    file = Path(environ.get(TRES_FILE) or "config-components.yaml")
    if os.path.exists(file):
        components = read_yaml(file, findings) or {}
    else:
        findings.error(TRES_FILE, f"the TRES file {file} does not exist; name it in this variable")
    return {
        "backend_type": backend_type,
        **dict.fromkeys(BACKEND_KEYS.values(), ""),
        **{BACKEND_KEYS[mode]: backend_type for mode in _modes(environ, findings)},
        "backend_settings": settings,
        "backend_components": components,
    }


def _modes(environ: Mapping[str, str], findings: Findings) -> tuple[Mode, ...]:
    if environ.get(DIRECTION):
        word = variable(environ, DIRECTION, field_types.choice(*DIRECTIONS), default="", findings=findings)
        return DIRECTIONS.get(word, ())
    if environ.get(MODE):
        word = variable(environ, MODE, field_types.choice(*Mode), default="", findings=findings)
        return (Mode(word),) if word else ()
    findings.error(DIRECTION, "it is not set: pull processes orders, push reports usage and syncs members")
    return ()
