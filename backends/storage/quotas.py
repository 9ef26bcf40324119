# SPDX-License-Identifier: MIT
"""Quotas of homes as command lines, pure: Ceph's attributes of a folder, user quotas of XFS and of Lustre.

Every name is checked here: xfs_quota takes a command as one word and splits it by itself. `homes` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.core.errors import PlanRefused
from agent.core.homes import QuotaProvider, is_username
from agent.core.host_actions import SetQuota

Argv = tuple[str, ...]
LFS_OPTIONS: Mapping[str, str] = {"bsoft": "-b", "bhard": "-B", "isoft": "-i", "ihard": "-I"}


@dataclass(frozen=True, slots=True)
class Check:
    """A command that shows what was set."""

    argv: Argv
    # Its whole output, None where that is for the log only.
    expected: str | None = None


@dataclass(frozen=True, slots=True)
class QuotaCommands:
    """Commands that set the quota of one user, in order, and those that show it."""

    settings: tuple[Argv, ...]
    checks: tuple[Check, ...]
    # Words on stderr are a refusal, whatever the exit code.
    stderr_means_failure: bool = False


def commands(action: SetQuota) -> QuotaCommands:
    """Return the commands of one action. Raises PlanRefused for a name or a place that must not reach a tool."""
    user, place = action.user, action.place
    if not is_username(user):
        raise PlanRefused(f"user name {user!r} cannot be used for a quota")
    if not place.startswith("/"):
        raise PlanRefused(f"the quota of {user} has no absolute path: {place!r}")
    match QuotaProvider(action.provider):
        case QuotaProvider.CEPH_XATTR:
            # -h: a home that becomes a link after it was looked at leads nowhere.
            return QuotaCommands(
                tuple(("setfattr", "-h", "-n", name, "-v", value, place) for name, value in action.limits),
                tuple(
                    Check(("getfattr", "-h", "--only-values", "-n", name, place), value)
                    for name, value in action.limits
                ),
            )
        case QuotaProvider.XFS:
            # Old releases of xfs_quota end with 0 although they refused: their words on stderr count.
            limits = " ".join(f"{name}={value}" for name, value in action.limits)
            return QuotaCommands(
                (("xfs_quota", "-x", "-c", f"limit -u {limits} {user}", place),),
                (Check(("xfs_quota", "-x", "-c", f"quota -u -N -b -h {user}", place)),),
                stderr_means_failure=True,
            )
        case QuotaProvider.LUSTRE:
            options = tuple(word for name, value in action.limits for word in (LFS_OPTIONS[name], value))
            return QuotaCommands(
                (("lfs", "setquota", "-u", user, *options, place),),
                (Check(("lfs", "quota", "-u", user, place)),),
            )
