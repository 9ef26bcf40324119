# SPDX-License-Identifier: MIT
"""Schema of the `backend_settings` that the MOAB backend reads. Names of accounts are made above it, from the common
keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields

from agent.config import field_types
from agent.config.model import Problem, Severity
from agent.core.account_names import fold
from backends.base import Parsed

DEFAULT_CLUSTER = "moab"
# Read by other parts (homes, quotas, directories), or known from sites that copied them from a SLURM offering.
OTHER_KEYS = frozenset({
    "enable_user_homedir_account_creation", "default_homedir_umask", "homedir_umask", "homedir_base_path",
    "homedir_quota", "project_directory", "periodic_limits", "ldap",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class MoabSettings:
    """Settings of one MOAB backend. `bin_path` empty: programs are found on PATH.

    `default_account`: a name that no allocation has; MAM knows nothing of it. `deactivate_*`: whether an account is
    made inactive while Waldur has its resource paused or downscaled. `manage_default_accounts`: whether default
    accounts of users are looked at and moved.
    """

    default_account: str = "root"
    cluster_name: str = ""
    bin_path: str = ""
    command_prefix: tuple[str, ...] = field(default=(), repr=False)
    deactivate_when_paused: bool = False
    deactivate_when_downscaled: bool = False
    manage_default_accounts: bool = False


def _name(**options: Any) -> fields.Field[Any]:
    """Names are often digits only, which YAML makes a number of."""
    return fields.Function(deserialize=field_types.text_or_number, allow_none=True, **options)


class MoabSchema(Schema):
    default_account = _name(load_default="root")
    cluster_name = _name(load_default=None)
    moab_bin_path = _name(load_default=None)
    command_prefix = fields.Function(deserialize=field_types.command_words, load_default=(), allow_none=True)
    deactivate_when_paused = fields.Boolean(load_default=False)
    deactivate_when_downscaled = fields.Boolean(load_default=False)
    manage_default_accounts = fields.Boolean(load_default=False)


SETTING_KEYS = frozenset(MoabSchema().fields) | OTHER_KEYS


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Settings, or every reason why not. Unknown keys are the caller's to tell: other backends may share the map."""
    try:
        loaded = MoabSchema(unknown=EXCLUDE).load(raw)
    except ValidationError as error:
        messages = error.messages if isinstance(error.messages, dict) else {"": error.messages}
        return Parsed(None, tuple(
            Problem(Severity.ERROR, f"{path}.{key}", " ".join(map(str, texts))) for key, texts in messages.items()
        ))  # fmt: skip
    return Parsed(
        MoabSettings(
            default_account=fold(loaded["default_account"] or "root"),
            cluster_name=fold(loaded["cluster_name"] or ""),
            bin_path=loaded["moab_bin_path"] or "",
            command_prefix=tuple(loaded["command_prefix"] or ()),
            deactivate_when_paused=loaded["deactivate_when_paused"],
            deactivate_when_downscaled=loaded["deactivate_when_downscaled"],
            manage_default_accounts=loaded["manage_default_accounts"],
        )
    )
