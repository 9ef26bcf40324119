# SPDX-License-Identifier: MIT
"""The configuration of the oldest service: one offering in environment variables, components in a TRES file.

Builds the tree that a YAML file would give, so that one schema judges both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.config.environment import declared
from agent.config.field_types import Text, choice
from agent.config.findings import Findings
from agent.config.keys import idle, key, keys_of
from agent.config.model import Mode, Problem
from agent.config.offering import BACKEND_KEYS, NOTHING_SCHEDULED
from agent.config.sources import read_yaml

API_VARIABLES = ("WALDUR_API_URL", "WALDUR_API_TOKEN", "WALDUR_OFFERING_UUID")
CONFIG_FILE = "WALDUR_CONFIG_FILE_PATH"
DIRECTION = "WALDUR_SYNC_DIRECTION"
MODE = "WALDUR_SITE_AGENT_MODE"
TRES_FILE = "SLURM_TRES_CONFIG_PATH"
COMMENT = re.compile(r"\s+#\s.*")
# Seen from the cluster: pull fetches orders from Waldur, push sends usage and members to it.
DIRECTIONS = {"pull": (Mode.ORDER_PROCESS,), "push": (Mode.REPORT, Mode.MEMBERSHIP_SYNC)}


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class OldVariables:
    """What the oldest service read. A value that stands for a key of a file is judged as that key."""

    waldur_api_url: str = key("", "as `waldur_api_url`", name=API_VARIABLES[0], usual="required")
    waldur_api_token: str = key("", "as `waldur_api_token`", name=API_VARIABLES[1], usual="required")
    waldur_offering_uuid: str = key("", "as `waldur_offering_uuid`", name=API_VARIABLES[2], usual="required")
    direction: str = key("", "`pull`: process orders; `push`: report usage and sync members", name=DIRECTION,
        of=choice(*DIRECTIONS), usual="required")
    mode: Mode | None = key(None, "instead of the direction: `order_process`, `report` or `membership_sync`", name=MODE,
        usual="")
    name: str = key("Single offering", "as `name`", name="WALDUR_OFFERING_NAME")
    config_file: str = key("", "a YAML file with the offerings, when the three above are not all set", name=CONFIG_FILE,
        usual="")
    backend_type: str = key("slurm", "as `backend_type`, and the backend of each mode", name="WALDUR_BACKEND_TYPE")
    tres_file: str = key("config-components.yaml", "the TRES file: a YAML map like [`backend_components`]"
        "(#backend_components) ([example](../examples/config-components.yaml))", name=TRES_FILE)
    deployment: str = key("docker", "`docker`: commands run through `docker exec`; `native`: on this host",
        name="SLURM_DEPLOYMENT_TYPE", of=choice("docker", "native"))
    container: str = key("slurmctld", "the container", name="SLURM_CONTAINER_NAME")
    default_account: str = key("waldur", "as `default_account`", name="SLURM_DEFAULT_ACCOUNT")
    customer_prefix: str = key("hpc_", "as `customer_prefix`", name="SLURM_CUSTOMER_PREFIX")
    project_prefix: str = key("hpc_", "as `project_prefix`", name="SLURM_PROJECT_PREFIX")
    allocation_prefix: str = key("hpc_", "as `allocation_prefix`", name="SLURM_ALLOCATION_PREFIX")
    allocation_name_max_len: str = key("34", "as `allocation_name_max_len`", name="SLURM_ALLOCATION_NAME_MAX_LEN")
    makes_homes: bool = key(False, "`yes` or `true`: make home directories",
        name="ENABLE_USER_HOMEDIR_ACCOUNT_CREATION", of=Text(lambda text: text.lower() in ("yes", "true")))
    username_source: Any = idle("usernames are those of Waldur's offering users", name="WALDUR_SLURM_USERNAME_SOURCE")
# fmt: on


_OF_OFFERING = ("name", "waldur_api_url", "waldur_api_token", "waldur_offering_uuid")
_OF_SETTINGS = (
    "default_account",
    "customer_prefix",
    "project_prefix",
    "allocation_prefix",
    "allocation_name_max_len",
)
_SITE_KEYS = frozenset({"backend_type", "backend_settings", "backend_components"})
_NAMES = {each.attribute: name for name, each in keys_of(OldVariables).items()}
_VARIABLE_OF = {
    **{f"offerings[0].{key}": _NAMES[key] for key in _OF_OFFERING},
    "offerings[0].verify_ssl": "REQUESTS_VERIFY_SSL",
    "offerings[0].backend_components": TRES_FILE,
    **{f"offerings[0].backend_settings.{key}": _NAMES[key] for key in _OF_SETTINGS},
}


def configures(environ: Mapping[str, str]) -> bool:
    """Return whether the variables name an offering and the way to it: then no file is needed."""
    return all(environ.get(name) for name in API_VARIABLES)


def tree_of(environ: Mapping[str, str], findings: Findings) -> Mapping[str, Any]:
    """Return the whole configuration, as a YAML file would give it."""
    old = _read(environ, findings)
    return {"offerings": [{**{key: getattr(old, key) for key in _OF_OFFERING}, **_site(old, findings)}]}


def completed(tree: Mapping[Any, Any], environ: Mapping[str, str], findings: Findings) -> Mapping[Any, Any]:
    """Complete a file of the oldest service: it names offerings and tokens only, the rest comes from the variables."""
    entries = tree.get("offerings")
    if not isinstance(entries, list) or not any(_is_bare(entry) for entry in entries):
        return tree
    site = _site(_read(environ, findings), findings)
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
    """Drop the advice for YAML's keys where the variable that says which modes run is wrong or not set."""
    several = tuple(problems)
    if not any(problem.path in (DIRECTION, MODE) for problem in several):
        return several
    return (problem for problem in several if problem.message != NOTHING_SCHEDULED)


def _is_bare(entry: object) -> bool:
    return isinstance(entry, Mapping) and _SITE_KEYS.isdisjoint(entry)


def modes(environ: Mapping[str, str]) -> tuple[Mode, ...]:
    """Return the modes that the variables ask for; none where they ask for none that there is."""
    old = _read(environ, Findings())
    return DIRECTIONS.get(old.direction, (old.mode,) if old.mode else ())


def _read(environ: Mapping[str, str], findings: Findings) -> OldVariables:
    """Return the variables, without comments as that service's own examples have them after the value: docker cuts
    them off, systemd does not. The mode counts where there is no direction.
    """
    given = {name: COMMENT.sub("", environ[name]) for name in keys_of(OldVariables) if name in environ}
    return declared(OldVariables, {**given, MODE: ""} if given.get(DIRECTION) else given, findings)


def _site(old: OldVariables, findings: Findings) -> dict[str, Any]:
    """Return the part of an offering that was never in a file."""
    settings: dict[str, Any] = {key: getattr(old, key) for key in _OF_SETTINGS}
    settings["enable_user_homedir_account_creation"] = old.makes_homes
    # The oldest service called the commands by their bare names, in the container as on the head node.
    settings["slurm_bin_path"] = ""
    if old.deployment == "docker":
        settings["command_prefix"] = ["docker", "exec", old.container]
    components: Mapping[Any, Any] = {}
    if os.path.exists(old.tres_file):
        components = read_yaml(Path(old.tres_file), findings) or {}
    else:
        findings.error(TRES_FILE, f"the TRES file {old.tres_file} does not exist; name it in this variable")
    wanted = DIRECTIONS.get(old.direction, (old.mode,) if old.mode else ())
    if not wanted and not findings.has_error_at(DIRECTION) and not findings.has_error_at(MODE):
        findings.error(
            DIRECTION, "it is not set: pull processes orders, push reports usage and syncs members"
        )
    return {
        "backend_type": old.backend_type,
        **dict.fromkeys(BACKEND_KEYS.values(), ""),
        **{BACKEND_KEYS[mode]: old.backend_type for mode in wanted},
        "backend_settings": settings,
        "backend_components": components,
    }
