# SPDX-License-Identifier: MIT
"""Quotas of homes as command lines: Ceph's attributes of a folder, user quotas of XFS and of Lustre.

`settings` are the commands that set a quota, `Check` the one that shows it. Nothing is run here, and names have
been checked before: xfs_quota takes a command as one word and splits it by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.core.errors import PlanRefused
from agent.core.homes import QuotaProvider, is_username
from agent.core.host_actions import SetQuota

Argv = tuple[str, ...]
LFS_OPTIONS: Mapping[str, str] = {"bsoft": "-b", "bhard": "-B", "isoft": "-i", "ihard": "-I"}


@dataclass(frozen=True, slots=True)
class Check:
    """A command that shows what was set; `expected` is its whole answer, None where it is for the log only."""

    argv: Argv
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaCommands:
    """What sets the quota of one user, in order, and what shows it. `complains`: words on stderr are a refusal."""

    settings: tuple[Argv, ...]
    checks: tuple[Check, ...]
    complains: bool = False


def commands(action: SetQuota) -> QuotaCommands:
    """The commands of one action. Raises PlanRefused for a name or a place that must not reach a tool."""
    if not is_username(action.user):
        raise PlanRefused(f"user name {action.user!r} cannot be used for a quota")
    if not action.place.startswith("/"):
        raise PlanRefused(f"the quota of {action.user} has no absolute path: {action.place!r}")
    return _PROVIDERS[QuotaProvider(action.provider)](action)


def _ceph(action: SetQuota) -> QuotaCommands:
    return QuotaCommands(
        tuple(("setfattr", "-n", name, "-v", value, action.place) for name, value in action.limits),
        tuple(
            Check(("getfattr", "--only-values", "-n", name, action.place), value)
            for name, value in action.limits
        ),
    )


def _xfs(action: SetQuota) -> QuotaCommands:
    """Old releases of xfs_quota end with 0 although they refused: their words on stderr count."""
    limits = " ".join(f"{name}={value}" for name, value in action.limits)
    return QuotaCommands(
        (("xfs_quota", "-x", "-c", f"limit -u {limits} {action.user}", action.place),),
        (Check(("xfs_quota", "-x", "-c", f"quota -u -N -b -h {action.user}", action.place)),),
        complains=True,
    )


def _lustre(action: SetQuota) -> QuotaCommands:
    options = tuple(word for name, value in action.limits for word in (LFS_OPTIONS[name], value))
    return QuotaCommands(
        (("lfs", "setquota", "-u", action.user, *options, action.place),),
        (Check(("lfs", "quota", "-u", action.user, action.place)),),
    )


_PROVIDERS: Mapping[QuotaProvider, Callable[[SetQuota], QuotaCommands]] = {
    QuotaProvider.CEPH_XATTR: _ceph,
    QuotaProvider.XFS: _xfs,
    QuotaProvider.LUSTRE: _lustre,
}
