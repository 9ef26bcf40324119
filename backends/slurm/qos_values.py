# SPDX-License-Identifier: MIT
"""A QoS of an account as slurmrestd takes it: sacctmgr's flags and limits under the names of its parsers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agent.core.actions import CreateQos
from agent.core.errors import PlanRefused
from agent.core.model import OwnQos
from backends.command_output import is_whole
from backends.slurm.allowed_names import checked
from backends.slurm.commands import mark_of_qos

# sacctmgr's flags whose names differ by more than capitals.
FLAGS = {
    "denyonlimit": "DENY_LIMIT",
    "nodecay": "NO_DECAY",
    "noreserve": "NO_RESERVE",
    "enforceusagethreshold": "ENFORCE_USAGE_THRESHOLD",
    "requiresreservation": "REQUIRED_RESERVATION",
    "overpartqos": "OVERRIDE_PARTITION_QOS",
    "partitionminnodes": "PARTITION_MINIMUM_NODE",
    "partitionmaxnodes": "PARTITION_MAXIMUM_NODE",
    "partitiontimelimit": "PARTITION_TIME_LIMIT",
    "usagefactorsafe": "USAGE_FACTOR_SAFE",
    "relative": "RELATIVE",
}
PATHS = {
    "GrpTRES": ("max", "tres", "total"),
    "MaxJobs": ("max", "jobs", "active_jobs", "per", "user"),
    "MaxSubmit": ("max", "jobs", "per", "user"),
    "MaxWall": ("max", "wall_clock", "per", "job"),
    "MinTRESPerJob": ("min", "tres", "per", "job"),
}
COUNTS = ("MaxJobs", "MaxSubmit")
NO_WALL = ("unlimited", "infinite")

_WALL = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,8})(?::([0-9]{1,8}))?(?::([0-9]{1,2}))?")
_UNIT = re.compile(r"(?<=[0-9])[KMGTPkmgtp](?=\s*(?:,|$))")
_TRES = re.compile(r"([^=,\s]+)=([0-9]{1,18})")


def wrong_values(own: OwnQos, *, by_rest: bool) -> Iterator[str]:
    """Yield a sentence for each flag and limit that SLURM does not take. sacctmgr skips flags that it does not
    know (22.05), and knows units and no limit, where slurmrestd has numbers and the names of its parsers.
    """
    known = {*FLAGS, *(name.lower() for name in FLAGS.values() if by_rest)}
    for word in own.flags.split(","):
        if word.strip() and word.strip().lower() not in known:
            yield (
                f"flags: SLURM has no flag {word.strip()!r} of a QoS: write some of {', '.join(sorted(FLAGS))} "
                "(capitals do not count), with commas between them"
            )
    for option, value in own.limits:
        if not by_rest and option == "MaxWall" and value.strip().lower() in NO_WALL:
            continue
        try:
            _limit(option, (value if by_rest else _UNIT.sub("", value)).strip())
        except PlanRefused as error:
            yield str(error)


def body(action: CreateQos, cluster: str) -> dict[str, Any]:
    """Return the object to post. Raises PlanRefused for a limit or a flag that it has no form for."""
    limits: dict[str, Any] = {}
    for option, value in action.limits:
        path = PATHS.get(option)
        if path is None:
            raise PlanRefused(f"qos_management: slurmrestd has no form for {option}")
        below = limits
        for step in path[:-1]:
            below = below.setdefault(step, {})
        below[path[-1]] = _limit(option, value.strip())
    words = [word.strip() for word in action.flags.split(",") if word.strip()]
    return {
        "name": checked("QoS", action.account),
        "description": mark_of_qos(action.account, cluster),
        "flags": [FLAGS.get(word.lower(), word.upper()) for word in words],
        "limits": limits,
    }


def _limit(option: str, value: str) -> Any:
    if option in COUNTS:
        if not is_whole(value):
            raise PlanRefused(f"qos_management: {option}={value} is not a number of jobs")
        return {"set": True, "infinite": False, "number": int(value)}
    if option == "MaxWall":
        return {"set": True, "infinite": False, "number": _minutes(value)}
    found = []
    for pair in value.split(","):
        limit = _TRES.fullmatch(pair.strip())
        if not limit:
            raise PlanRefused(f"qos_management: {option}={value} should read like cpu=100,node=2")
        kind, _, name = checked("TRES", limit[1]).partition("/")
        found.append({"type": kind, "name": name, "count": int(limit[2])})
    return found


def _minutes(text: str) -> int:
    """Parse `minutes`, `MM:SS`, `HH:MM:SS` or `D-HH[:MM[:SS]]`; a begun minute counts. Raises PlanRefused."""
    found = _WALL.fullmatch(text)
    if not found:
        raise PlanRefused(f"qos_management: MaxWall={text} should read like 90, 1:30:00 or 2-12:00:00")
    days, *parts = (int(part) if part else None for part in found.groups())
    first, second, third = parts
    if days is not None:
        seconds = ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    elif third is not None:
        seconds = ((first or 0) * 60 + (second or 0)) * 60 + third
    else:
        seconds = (first or 0) * 60 + (second or 0)
    return -(-seconds // 60)
