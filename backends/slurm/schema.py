# SPDX-License-Identifier: MIT
"""The `backend_settings` that the SLURM backend reads, with the reference's names, meanings and defaults."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from marshmallow import ValidationError

from agent.config.field_types import Several, Text, choice, name_text
from agent.config.findings import Findings, is_unusable, unknown_keys, without_effect
from agent.config.keys import key, keys_of
from agent.config.model import Problem, Severity
from agent.config.reading import read
from agent.config.schema import ClusterKeys, PeriodicLimitsKeys
from agent.core.account_names import fold
from agent.core.model import OwnQos
from backends.base import Parsed
from backends.slurm import qos_values
from backends.slurm.allowed_names import is_usable
from backends.slurm.parse import ROOT
from backends.slurm.programs import first_program
from backends.slurm.rest_access import RestAccess, read_access

# Where packages put the commands.
USUAL_FOLDER = "/usr/bin"
POLICIES = ("common", "individual", "none")
MODES = ("cli", "rest")
NO_RESET = "slurmrestd cannot reset raw usage (RawUsage=0)"
QOS_LIMITS = {
    "grp_tres": "GrpTRES",
    "max_jobs": "MaxJobs",
    "max_submit": "MaxSubmit",
    "max_wall": "MaxWall",
    "min_tres_per_job": "MinTRESPerJob",
}


def _name(kind: str, empty: str | None = "") -> Text:
    """Return the type of a name in lower case; `empty` is taken for an empty one, which None refuses. With a name that
    cannot go into a command every order would fail.
    """

    def parse(name: str) -> str:
        if empty is not None and not fold(name):
            return empty
        if not is_usable(kind, fold(name)):
            raise ValidationError(f"it is not a valid SLURM {kind} name")
        return fold(name)

    return name_text(parse)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class QosManagement:
    """A QoS for each account."""

    enabled: bool = key(False, "a new account gets a QoS of its own name")
    flags: str = key("DenyOnLimit,NoDecay", "flags of that QoS", null="")
    grp_tres: str | None = key(None, "its GrpTRES, as `cpu=25600,node=100`")
    max_jobs: int | None = key(None, "its MaxJobs (on 22.05: for each user)")
    max_submit: int | None = key(None, "its MaxSubmit (on 22.05: for each user)")
    max_wall: str | None = key(None, "its MaxWall")
    min_tres_per_job: str | None = key(None, "its MinTRESPerJob")
    additional_qos: tuple[str, ...] = key((), "a list of QoS that the account gets as well",
        of=Several(_name("QoS", empty=None)))
    skip_qos_swap: bool = key(False, "a paused or downscaled account takes no new jobs (`GrpSubmitJobs=0`) and keeps "
        "its QoS; running jobs go on")
    apply_limits_to_qos: bool = key(False, "the limits of Waldur are GrpTRESMins of the QoS, and not of the account")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(ClusterKeys):
    """Settings of one SLURM backend. The last four follow from keys."""

    root_account: str = key("", "the account above customers'", of=_name("account"), usual="as `default_account`")
    default_account_policy: str = key("common", "`common`, `individual` or `none`: "
        "[see below](configuration.md#default_account)", of=choice(*POLICIES))
    parent_account: str = key("", "the account above projects', without accounts of customers", of=_name("account"))
    bin_path: str = key(USUAL_FOLDER, "the folder of SLURM's commands; empty: on PATH", name="slurm_bin_path",
        of=name_text(), null="")
    execution_mode: str = key("cli", "`cli`: SLURM's commands; `rest`: through [slurmrestd](slurmrestd.md)",
        of=choice(*MODES))
    qos_default: str = key("normal", "the QoS of an account that is neither paused nor downscaled any more",
        of=_name("QoS", "normal"))
    qos_paused: str = key("", "the QoS of a paused account", of=_name("QoS"))
    qos_downscaled: str = key("", "the QoS of a downscaled account", of=_name("QoS"))
    qos_management: QosManagement = key(QosManagement(), "a QoS for each account, see below", usual="off")
    qos_enforcement_enabled: bool = key(False, "members get the QoS and the partition that their order names")
    enforce_offering_qos: bool | None = key(None, "true, false: the site decides for the offering",
        usual="as the offering's `enforce_qos`")
    enforce_offering_partitions: bool = key(False, "members get the offering's partitions, as Waldur has them")
    default_partition: str = key("", "the partition of members where the order and the offering give none",
        of=_name("partition"))
    rest_api: Mapping[Any, Any] = key(dict, "the way to slurmrestd, for `execution_mode: rest`",
        section=RestAccess, may_be_false=True)
    own_qos: OwnQos | None = None
    skip_qos_swap: bool = False
    rest: RestAccess | None = None
    emulator_url: str = ""
# fmt: on


def parse(raw: Mapping[str, Any], path: str) -> Parsed:
    """Parse `backend_settings`: settings, or every problem. Unknown keys are left to the caller: others read some."""
    findings = Findings()
    # What is wrong with these keys the agent reports, which reads them as well; they are off then.
    limits = raw.get("periodic_limits") or {}
    periodic = read(PeriodicLimitsKeys, limits, path, Findings(), open_ended=True)
    settings = read(SlurmSettings, raw, path, findings, open_ended=True)
    # A rule is not judged by a key whose own value is wrong already.
    wrong = {problem.path.removeprefix(f"{path}.") for problem in findings.problems}
    if not is_usable("account", settings.default_account):
        sentence = f"{settings.default_account!r} is not a valid SLURM account name"
        findings.error(f"{path}.default_account", sentence)
        wrong.add("default_account")
    if (
        settings.qos_enforcement_enabled
        and settings.enforce_offering_qos
        and (settings.qos_paused or settings.qos_downscaled)
    ):
        sentence = "with enforce_offering_qos the states are set by GrpSubmitJobs: remove qos_paused and qos_downscaled"
        findings.warn(path, sentence)
    settings = replace(
        settings,
        # SLURM itself keeps the names of clusters in lower case (22.05).
        cluster_name=fold(settings.cluster_name),
        root_account=settings.root_account or settings.default_account,
        own_qos=_own_qos(settings.qos_management),
        skip_qos_swap=settings.qos_management.skip_qos_swap,
        emulator_url=periodic.emulator_base_url if periodic.emulator_mode else "",
    )
    by_rest = settings.execution_mode == "rest"
    findings.add(_qos_conflicts(raw, settings.qos_management, periodic, f"{path}.qos_management", wrong))
    if by_rest:
        settings = replace(settings, rest=_rest(raw, settings, periodic, path, findings, wrong))
    elif "execution_mode" in wrong and isinstance(raw.get("rest_api"), Mapping):
        read_access(raw["rest_api"], f"{path}.rest_api", findings)
    elif isinstance(raw.get("rest_api"), Mapping):
        findings.add(unknown_keys(raw["rest_api"], keys_of(RestAccess), f"{path}.rest_api"))
    for sentence in qos_values.wrong_values(settings.own_qos, by_rest=by_rest) if settings.own_qos else ():
        findings.error(f"{path}.qos_management", sentence)
    findings.add(_without_effect(raw, settings, path, wrong))
    findings.add(_default_account(raw, settings, path, wrong))
    return Parsed(None if is_unusable(findings.problems) else settings, findings.problems)


def _own_qos(management: QosManagement) -> OwnQos | None:
    """Return the pattern of the QoS that each account gets, without its name; None where it is switched off."""
    if not management.enabled:
        return None
    limits = ((option, getattr(management, key)) for key, option in QOS_LIMITS.items())
    return OwnQos(
        name="",
        flags=management.flags,
        limits=tuple((option, str(value)) for option, value in limits if value is not None),
        additional=tuple(dict.fromkeys(management.additional_qos)),
        holds_limits=management.apply_limits_to_qos,
    )


def _rest(
    raw: Mapping[str, Any],
    settings: SlurmSettings,
    periodic: PeriodicLimitsKeys,
    path: str,
    findings: Findings,
    wrong: Set[str],
) -> RestAccess | None:
    """Return the way to slurmrestd, and add what it cannot do of these settings."""
    access = None
    if "rest_api" not in wrong:
        access = read_access(raw.get("rest_api"), f"{path}.rest_api", findings)
    if not settings.cluster_name and "cluster_name" not in wrong:
        sentence = "is missing: slurmrestd has no cluster of its own, as slurm.conf has, so `rest` needs it"
        findings.error(f"{path}.cluster_name", sentence)
    has_commands = shutil.which(first_program(settings.bin_path, settings.command_prefix)) is not None
    if settings.own_qos and settings.own_qos.holds_limits and not has_commands:
        sentence = (
            "slurmrestd cannot reset what a QoS has counted, and this host has no sacctmgr that could "
            "(`slurm_bin_path`): leave it out, or use `execution_mode: cli`"
        )
        findings.error(f"{path}.qos_management.apply_limits_to_qos", sentence)
    if periodic.enabled and not settings.emulator_url:
        findings.warn(
            f"{path}.periodic_limits",
            f"{NO_RESET}: messages of a policy with `raw_usage_reset` are refused where this host has no sacctmgr "
            "(`slurm_bin_path`). Switch it off in Waldur's policy, or use `execution_mode: cli`",
        )
    return access


def _qos_conflicts(
    raw: Mapping[str, Any],
    management: QosManagement,
    periodic: PeriodicLimitsKeys,
    path: str,
    wrong: Set[str],
) -> Iterator[Problem]:
    """Yield what the reference does not start with either: a state by two ways, limits on a QoS that is not made."""
    skips, applies = management.skip_qos_swap, management.apply_limits_to_qos
    if applies and not management.enabled and "qos_management.enabled" not in wrong:
        message = "limits cannot go on a QoS that is not made: set `enabled: true`, or remove it"
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    if applies and not skips and "qos_management.skip_qos_swap" not in wrong:
        message = "a QoS of a state would take the one with the limits away: set `skip_qos_swap: true`"
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    if applies and periodic.enabled:
        message = (
            "periodic_limits reset the account only, and the QoS would keep its limit: remove one of the two"
        )
        yield Problem(Severity.ERROR, f"{path}.apply_limits_to_qos", message)
    for name in ("qos_paused", "qos_downscaled", "qos_default"):
        if skips and raw.get(name) not in (None, ""):
            message = f"no QoS is exchanged then, and `{name}` names one for that: remove one of the two"
            yield Problem(Severity.ERROR, f"{path}.skip_qos_swap", message)


def _default_account(
    raw: Mapping[str, Any], settings: SlurmSettings, path: str, wrong: Set[str]
) -> Iterator[Problem]:
    """Yield what a default account that is written means for members; the reference would let them join it."""
    if settings.default_account_policy != "common" or not raw.get("default_account"):
        return
    if not wrong.isdisjoint({"default_account", "default_account_policy", "root_account"}):
        return
    account, top = settings.default_account, settings.root_account
    if account == ROOT:
        means = f"{ROOT} is where customers' accounts go, and becomes no user's default account"
    elif top == account:
        means = (
            f"{account} is where customers' accounts go, and becomes no user's default account: one that takes no jobs "
            "would close all accounts below it. Name the account above customers' by `root_account`"
        )
    else:
        means = (
            f"{account} becomes members' default account only while it takes no jobs (GrpSubmitJobs=0): jobs without "
            "an account would count for no allocation there"
        )
    message = f"{means}. Members get their allocation's, as with `default_account_policy: none`"
    yield Problem(Severity.WARNING, f"{path}.default_account", message)


def _without_effect(
    raw: Mapping[str, Any], settings: SlurmSettings, path: str, wrong: Set[str]
) -> Iterator[Problem]:
    """Yield what is written and not read, because another key says otherwise."""
    if not settings.qos_management.enabled and "qos_management.enabled" not in wrong:
        why = "`enabled: true` is not written, so no account gets a QoS of its own"
        read_anyway = {"enabled", "skip_qos_swap", "apply_limits_to_qos"}
        keys = {
            name for name in keys_of(QosManagement) if f"qos_management.{name}" not in wrong
        } - read_anyway
        yield from without_effect(raw.get("qos_management"), keys, f"{path}.qos_management", why)
    if "execution_mode" in wrong:
        return
    if settings.execution_mode != "rest":
        why = "SLURM's commands are used. Set `execution_mode: rest` for slurmrestd, or leave `rest_api` out"
        yield from without_effect(raw, {"rest_api"} - wrong, path, why)
        return
    section = raw.get("rest_api")
    if isinstance(section, Mapping):
        written = [name for name in ("token_file", "token_command", "token_env") if section.get(name)]
        why = f"`{written[0]}` comes first" if written else ""
        yield from without_effect(section, written[1:], f"{path}.rest_api", why)
