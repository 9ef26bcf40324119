# SPDX-License-Identifier: MIT
"""In which zone SLURM's programs read and write times: that of TZ in their environment, never this process's.

glibc takes a zone that it has no file for as UTC and says nothing: a month would begin some hours off.
"""

from __future__ import annotations

import os
from pathlib import Path

from agent.core.errors import BackendError
from backends.process import Runner

ZONE_FOLDER = "/usr/share/zoneinfo"
UTC = "UTC"


class ZoneMissing(BackendError):
    """This host does not know the zone: an operator must act."""

    of_host = True


def environment(runner: Runner, zone: str) -> dict[str, str]:
    """What a child needs to read times in a zone. Raises ZoneMissing; behind a prefix nobody can tell."""
    folder = os.environ.get("TZDIR") or ZONE_FOLDER
    if zone != UTC and not runner.prefixed and not (zone and Path(folder, zone).is_file()):
        raise ZoneMissing(
            f"this host has no time zone {zone!r} ({folder}): install the package tzdata, or set `timezone` to a "
            "zone that is there"
        )
    return {"TZ": zone}
