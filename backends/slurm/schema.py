# SPDX-License-Identifier: MIT
"""The `backend_settings` that the SLURM backend reads, with the reference's names, meanings and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields, validate

from agent.config import field_types
from agent.config.findings import without_effect
from agent.config.model import Problem, Severity
from agent.config.not_served import unknown_below
from agent.core.account_names import fold
from agent.core.model import OwnQos
from backends.base import Parsed
from backends.slurm.allowed_names import is_usable
from backends.slurm.parse import ROOT
from backends.slurm.rest import qos
from backends.slurm.rest.access import RestAccess
from backends.slurm.rest.access import read as read_access

POLICIES = ("common", "individual", "none")
MODES = ("cli", "rest")
EMULATOR_URL = "http://localhost:8080"
NO_RESET = "slurmrestd cannot reset raw usage (RawUsage=0)"
QOS_LIMITS = {
    "grp_tres": "GrpTRES",
    "max_jobs": "MaxJobs",
    "max_submit": "MaxSubmit",
    "max_wall": "MaxWall",
    "min_tres_per_job": "MinTRESPerJob",
}
NAME_KEYS = {
    "default_account": "account",
    "root_account": "account",
    "parent_account": "account",
    "default_partition": "partition",
    "qos_default": "QoS",
    "qos_downscaled": "QoS",
    "qos_paused": "QoS",
}

# Read by other parts (homes, quotas, directories, groups, periodic limits), or known from older releases.
OTHER_KEYS = frozenset({
    "enable_user_homedir_account_creation", "default_homedir_umask", "homedir_umask", "homedir_base_path",
    "homedir_quota", "project_directory", "periodic_limits", "ldap", "rest_api",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Settings of one SLURM backend. `bin_path` empty: programs are found on PATH."""

    default_account: str
    root_account: str
    default_account_policy: str
    parent_account: str
    cluster_name: str
    bin_path: str
    command_prefix: tuple[str, ...] = field(repr=False)
    default_partition: str
    enforce_offering_partitions: bool
    qos_default: str
    qos_downscaled: str
    qos_paused: str
    qos_enforcement_enabled: bool
    enforce_offering_qos: bool | None
    own_qos: OwnQos | None
    skip_qos_swap: bool = False
    rest: RestAccess | None = None
    emulator_url: str = ""


class QosManagementSchema(Schema):
    """A QoS for each account. On 22.05 `max_jobs` and `max_submit` of a QoS count per user."""

    enabled = fields.Boolean(load_default=False)
    flags = fields.String(load_default="DenyOnLimit,NoDecay", allow_none=True)
    grp_tres = fields.String(load_default=None, allow_none=True)
    max_jobs = fields.Integer(load_default=None, allow_none=True)
    max_submit = fields.Integer(load_default=None, allow_none=True)
    max_wall = fields.String(load_default=None, allow_none=True)
    min_tres_per_job = fields.String(load_default=None, allow_none=True)
    additional_qos = fields.List(fields.String(), load_default=list, allow_none=True)
    skip_qos_swap = fields.Boolean(load_default=False, allow_none=True)
    apply_limits_to_qos = fields.Boolean(load_default=False, allow_none=True)


def _name(**options: Any) -> fields.Field[Any]:
    """Names are often digits only, which YAML makes a number of."""
    return fields.Function(deserialize=field_types.text_or_number, allow_none=True, **options)


class SlurmSchema(Schema):
    default_account = _name(load_default=ROOT)
    root_account = _name(load_default=None)
    default_account_policy = fields.String(
        load_default="common",
        validate=validate.OneOf(POLICIES, error="{input!r} is not known; use one of {choices}"),
    )
    parent_account = _name(load_default=None)
    cluster_name = _name(load_default=None)
    slurm_bin_path = _name(load_default="/usr/bin")
    execution_mode = fields.String(
        load_default="cli",
        validate=validate.OneOf(MODES, error="{input!r} is not known; use one of {choices}"),
    )
    command_prefix = fields.Function(deserialize=field_types.command_words, load_default=(), allow_none=True)
    default_partition = _name(load_default=None)
    enforce_offering_partitions = fields.Boolean(load_default=False)
    qos_default = _name(load_default="normal")
    qos_downscaled = _name(load_default=None)
    qos_paused = _name(load_default=None)
    qos_enforcement_enabled = fields.Boolean(load_default=False)
    enforce_offering_qos = fields.Boolean(load_default=None, allow_none=True)
    qos_management = fields.Nested(QosManagementSchema, load_default=None, allow_none=True, unknown=EXCLUDE)


SETTING_KEYS = frozenset(SlurmSchema().fields) | OTHER_KEYS
# The keys of the maps within the settings; those of `ldap` and of homes and directories are judged elsewhere.
NESTED_KEYS = {
    "qos_management": set(QosManagementSchema().fields),
    "rest_api": {"url", "api_version", "username", "token_file", "token_env", "verify_ssl", "timeout"},
}  # fmt: skip


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Parse `backend_settings`: settings, or every problem. Unknown keys are left to the caller: others read some."""
    try:
        loaded = SlurmSchema(unknown=EXCLUDE).load(raw)
    except ValidationError as error:
        return Parsed(None, _wrong_values(error, raw, path))
    own_qos = _own_qos(loaded["qos_management"])
    rest, rest_problems = _rest(raw, loaded, own_qos, path)
    problems = (
        *_conflicts(loaded, path),
        *_qos_conflicts(raw, loaded["qos_management"] or {}, f"{path}.qos_management"),
        *rest_problems,
        *(
            Problem(Severity.ERROR, f"{path}.qos_management", sentence)
            for sentence in (
                qos.wrong_values(own_qos, by_rest=loaded["execution_mode"] == "rest") if own_qos else ()
            )
        ),
        *unknown_below(raw, NESTED_KEYS, path),
        *_without_effect(raw, loaded, path),
    )
    if any(p.severity is Severity.ERROR for p in problems):
        return Parsed(None, problems)
    problems += tuple(_default_account(raw, loaded, path))
    default_account = fold(loaded["default_account"] or ROOT)
    return Parsed(
        SlurmSettings(
            default_account=default_account,
            root_account=fold(loaded["root_account"] or default_account),
            default_account_policy=loaded["default_account_policy"],
            parent_account=fold(loaded["parent_account"] or ""),
            # SLURM itself keeps the names of clusters in lower case (22.05).
            cluster_name=fold(loaded["cluster_name"] or ""),
            bin_path=loaded["slurm_bin_path"] or "",
            command_prefix=tuple(loaded["command_prefix"] or ()),
            default_partition=fold(loaded["default_partition"] or ""),
            enforce_offering_partitions=loaded["enforce_offering_partitions"],
            qos_default=fold(loaded["qos_default"] or "normal"),
            qos_downscaled=fold(loaded["qos_downscaled"] or ""),
            qos_paused=fold(loaded["qos_paused"] or ""),
            qos_enforcement_enabled=loaded["qos_enforcement_enabled"],
            enforce_offering_qos=loaded["enforce_offering_qos"],
            own_qos=own_qos,
            skip_qos_swap=bool((loaded["qos_management"] or {}).get("skip_qos_swap")),
            rest=rest,
            emulator_url=_emulator_url(raw.get("periodic_limits")),
        ),
        problems,
    )


def _wrong_values(error: ValidationError, raw: Mapping[str, Any], path: str) -> tuple[Problem, ...]:
    """Return what cannot be read, and the unknown keys of maps beside it."""
    messages = error.messages if isinstance(error.messages, dict) else {"": error.messages}
    wrong = {f"{path}.{key}": _sentence(texts) for key, texts in messages.items()}
    unknown = (each for each in unknown_below(raw, NESTED_KEYS, path) if each.path not in wrong)
    return (*(Problem(Severity.ERROR, *each) for each in wrong.items()), *unknown)


def _sentence(texts: Any) -> str:
    if isinstance(texts, Mapping):
        return "; ".join(f"{key}: {_sentence(value)}" for key, value in texts.items())
    return " ".join(map(str, texts))


def _own_qos(management: Mapping[str, Any] | None) -> OwnQos | None:
    """Return the pattern of the QoS that each account gets, without its name; None where it is switched off."""
    if not management or not management["enabled"]:
        return None
    limits = ((option, management[key]) for key, option in QOS_LIMITS.items())
    return OwnQos(
        name="",
        flags=management["flags"] or "",
        limits=tuple((option, str(value)) for option, value in limits if value is not None),
        additional=tuple(dict.fromkeys(map(fold, management["additional_qos"] or ()))),
        holds_limits=bool(management["apply_limits_to_qos"]),
    )


def _rest(
    raw: Mapping[str, Any], loaded: Mapping[str, Any], own_qos: OwnQos | None, path: str
) -> tuple[RestAccess | None, list[Problem]]:
    """Return the way to slurmrestd, None with the commands; and what it cannot do of these settings."""
    if loaded["execution_mode"] != "rest":
        return None, []
    access, problems = read_access(raw.get("rest_api"), f"{path}.rest_api")
    if not loaded["cluster_name"]:
        sentence = "is missing: slurmrestd has no cluster of its own, as slurm.conf has, so `rest` needs it"
        problems.append(Problem(Severity.ERROR, f"{path}.cluster_name", sentence))
    if own_qos and own_qos.holds_limits:
        sentence = (
            "slurmrestd cannot reset what a QoS has counted: leave it out, or use `execution_mode: cli`"
        )
        problems.append(Problem(Severity.ERROR, f"{path}.qos_management.apply_limits_to_qos", sentence))
    limits = raw.get("periodic_limits")
    if isinstance(limits, Mapping) and limits.get("enabled") and not _emulator_url(limits):
        problems.append(Problem(
            Severity.WARNING, f"{path}.periodic_limits",
            f"{NO_RESET}: messages of a policy with `raw_usage_reset` are refused. Switch it off in Waldur's policy, "
            "or use `execution_mode: cli`",
        ))  # fmt: skip
    return access, problems


def _emulator_url(limits: object) -> str:
    """Return where the emulator of periodic limits is, empty for the cluster itself. What is wrong with these keys the
    configuration tells; periodic limits are off then.
    """
    if not isinstance(limits, Mapping):
        return ""
    try:
        emulates = limits.get("emulator_mode") is not None and field_types.flag(limits["emulator_mode"])
    except ValidationError:
        return ""
    return str(limits.get("emulator_base_url") or EMULATOR_URL) if emulates else ""


def _conflicts(loaded: Mapping[str, Any], path: str) -> list[Problem]:
    found = []
    # A name that cannot go into a command would make every order fail.
    names = [(key, kind, loaded[key]) for key, kind in NAME_KEYS.items() if loaded[key]]
    additional = (loaded["qos_management"] or {}).get("additional_qos") or ()
    names += [("qos_management", "QoS", name) for name in additional]
    found += [
        Problem(Severity.ERROR, f"{path}.{key}", f"{name!r} is not a valid SLURM {kind} name")
        for key, kind, name in names
        if not is_usable(kind, fold(name))
    ]
    if (
        loaded["qos_enforcement_enabled"]
        and loaded["enforce_offering_qos"]
        and (loaded["qos_paused"] or loaded["qos_downscaled"])
    ):
        found.append(Problem(
            Severity.WARNING, path,
            "with enforce_offering_qos the states are set by GrpSubmitJobs: leave out qos_paused and qos_downscaled",
        ))  # fmt: skip
    return found


def _qos_conflicts(raw: Mapping[str, Any], management: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield what the reference does not start with either: a state by two ways, limits on a QoS that nobody makes."""
    skips, applies = management.get("skip_qos_swap"), management.get("apply_limits_to_qos")
    if applies and not management["enabled"]:
        message = "limits cannot go on a QoS that is not made: set `enabled: true`, or leave it out"
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    if applies and not skips:
        message = "a QoS of a state would take the one with the limits away: set `skip_qos_swap: true`"
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    periodic = raw.get("periodic_limits")
    if applies and isinstance(periodic, Mapping) and periodic.get("enabled") not in (None, False):
        message = "periodic_limits reset the account only, and the QoS would keep its limit: leave out one of the two"
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    for key in ("qos_paused", "qos_downscaled", "qos_default"):
        if skips and raw.get(key) not in (None, ""):
            message = f"no QoS is exchanged then, and `{key}` names one for that: leave out one of the two"
            yield Problem(Severity.ERROR, f"{path}.skip_qos_swap", message)


def _default_account(raw: Mapping[str, Any], loaded: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield what a default account that is written means for members; the reference would let them join it."""
    if loaded["default_account_policy"] != "common" or not raw.get("default_account"):
        return
    account, top = fold(loaded["default_account"]), fold(loaded["root_account"] or "")
    if account == ROOT:
        means = f"{ROOT} is where customers' accounts go, and becomes nobody's default account"
    elif top in ("", account):
        means = (
            f"{account} is where customers' accounts go, and becomes nobody's default account: one that takes no jobs "
            "would close all accounts below it. Name the account above customers' by `root_account`"
        )
    else:
        means = (
            f"{account} becomes members' default account only while it takes no jobs (GrpSubmitJobs=0): jobs without "
            "an account would count for no allocation there"
        )
    message = f"{means}. Members get their allocation's, as with `default_account_policy: none`"
    yield Problem(Severity.WARNING, f"{path}.default_account", message)


def _without_effect(raw: Mapping[str, Any], loaded: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """Yield what is written and not read, because another key says otherwise."""
    management = loaded["qos_management"] or {}
    if not management.get("enabled"):
        why = "`enabled: true` is not written, so no account gets a QoS of its own"
        read_anyway = {"enabled", "skip_qos_swap", "apply_limits_to_qos"}
        keys = NESTED_KEYS["qos_management"] - read_anyway
        yield from without_effect(raw.get("qos_management"), keys, f"{path}.qos_management", why)
    if loaded["execution_mode"] != "rest":
        why = "SLURM's commands are used. Set `execution_mode: rest` for slurmrestd, or leave `rest_api` out"
        yield from without_effect(raw, ("rest_api",), path, why)
        return
    why = "with `execution_mode: rest` no command of SLURM is started"
    yield from without_effect(raw, ("command_prefix", "slurm_bin_path"), path, why)
    section = raw.get("rest_api")
    if isinstance(section, Mapping) and section.get("token_file"):
        yield from without_effect(section, ("token_env",), f"{path}.rest_api", "`token_file` comes first")
