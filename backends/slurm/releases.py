# SPDX-License-Identifier: MIT
"""Which releases of SLURM serve a site, what of theirs is used, and what a newer one would bring: words for `doctor`.

What a release brings is what was measured on 22.05, 24.11 and 26.05 (docs/slurm.md, 10 and 11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# `sacctmgr show config` names the release of the command and that of slurmdbd.
_VERSION = re.compile(r"^SLURM(|DBD)_VERSION\s*=\s*(\S+)$", re.MULTILINE)
# The upper byte of a protocol's number; slurmrestd counts alike, v0.0.42 came with 24.11 (slurm_protocol_common.h).
_RELEASES = {
    38: "22.05",
    39: "23.02",
    40: "23.11",
    41: "24.05",
    42: "24.11",
    43: "25.05",
    44: "25.11",
    45: "26.05",
}


@dataclass(frozen=True, slots=True)
class _Gain:
    """What a release brought."""

    # The first release that has it, and the first that had it no more until then, empty where none ever had it.
    since: str
    text: str
    lost_in: str = ""


_GAINS = (
    # v0.0.40, by which accounts and users can be added (`rest_access`).
    _Gain("23.11", "a slurmrestd that `execution_mode: rest` can use"),
    _Gain("24.11", "on a cluster of 10,000 associations, writes in a quarter of the time"),
    _Gain("26.05", "a refusal to move an account below one that is in it"),
    _Gain("26.05", "a removal of accounts that leaves none below them without a parent", lost_in="24.11"),
)


def versions(config: str) -> dict[str, str]:
    """Parse `sacctmgr show config`: slurmdbd and sacctmgr to their releases, empty where it names none."""
    found = {match[1]: match[2] for match in _VERSION.finditer(config)}
    return {"slurmdbd": found.get("DBD", ""), "sacctmgr": found.get("", "")}


def of_protocol(number: int) -> str:
    """Return the release of a server by the protocol that it speaks, empty where it has told none."""
    return _RELEASES.get(number >> 8, f"of protocol {number}") if number else ""


def described(programs: Mapping[str, str], used: str) -> str:
    """Return the sentences about the releases of programs, of which the first decides what a newer one would bring;
    `used` is what the agent uses of them.
    """
    known = {program: release for program, release in programs.items() if release}
    if not known:
        return ""
    named = ", ".join(f"{program} {release}" for program, release in known.items())
    own = ".".join(next(iter(known.values())).split(".")[:2])
    lacking = [gain for gain in _GAINS if (gain.lost_in or "") <= own < gain.since]
    brings = [
        f"{since} would bring {', '.join(gain.text for gain in lacking if gain.since == since)}"
        for since in dict.fromkeys(gain.since for gain in lacking)
    ]
    return f"{named}; {used}; {'; '.join(brings) or 'no later release is known to bring more'}"
