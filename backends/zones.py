# SPDX-License-Identifier: MIT
"""The time zone in which a cluster's programs read times: TZ in their environment, never this process's.

glibc takes a zone that it has no file for as UTC and says nothing: a month would begin some hours off. So it is
looked first: for the file on this host; behind a prefix, by what `date` makes of the month's border there.
"""

from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agent.core.errors import BackendError
from agent.core.usage import UsageQuery
from backends.process import Runner

log = logging.getLogger(__name__)

ZONE_FOLDER = "/usr/share/zoneinfo"
UTC = "UTC"


class ZoneMissing(BackendError):
    """A zone is not known where the cluster's programs run: an operator must act."""

    of_host = True


class Zones:
    """Time zones of the place where a runner's commands run."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._known: set[str] = {UTC}

    def environment(self, query: UsageQuery) -> dict[str, str]:
        """Return what a child needs to read times in the query's zone. Raises ZoneMissing."""
        if query.zone not in self._known:
            check = self._check_there if self._runner.prefixed else _check_here
            check(query)
        return {"TZ": query.zone}

    def difference(self, query: UsageQuery) -> str:
        """Say how the month's border by the clocks there differs from the query's zone; empty where it does not."""
        for moment, expected in _borders(query):
            own = self._offset("env", "-u", "TZ", moment=moment)
            if own != expected:
                return f"UTC{own or ' unknown'} at its border, not {expected}"
        return ""

    def _check_there(self, query: UsageQuery) -> None:
        """One `date` for a zone; where the month's borders are those of UTC, it does not matter."""
        for moment, expected in (border for border in _borders(query) if border[1] != "+0000"):
            found = self._offset("env", f"TZ={query.zone}", moment=moment)
            if found and found != expected:
                raise ZoneMissing(
                    f"behind command_prefix the time zone {query.zone!r} is taken as UTC{found}, not {expected}: "
                    "install the package tzdata there"
                )
            if not found:
                log.warning(
                    "behind command_prefix `date` does not show whether %s is known there", query.zone
                )
            self._known.add(query.zone)
            return

    def _offset(self, *before: str, moment: int) -> str:
        """`+0300`, as `date` prints it; empty where it prints nothing."""
        done = self._runner.read((*before, "date", "-d", f"@{moment}", "+%z"))
        return done.stdout.strip() if done.returncode == 0 else ""


def _check_here(query: UsageQuery) -> None:
    folder = os.environ.get("TZDIR") or ZONE_FOLDER
    if not (query.zone and Path(folder, query.zone).is_file()):
        raise ZoneMissing(
            f"this host has no time zone {query.zone!r} ({folder}): install the package tzdata, or set `timezone` to a "
            "zone that is there"
        )


def window(query: UsageQuery) -> tuple[int, int]:
    """Return the first second of the month and of the next. Raises ZoneMissing."""
    (since, _), (until, _) = _borders(query)
    return since, until


def _borders(query: UsageQuery) -> list[tuple[int, str]]:
    """Return the first second of the month and of the next, with the zone's offset at each."""
    try:
        zone = ZoneInfo(query.zone) if query.zone != UTC else datetime.UTC
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ZoneMissing(
            f"this host has no time zone {query.zone!r}: install the package tzdata, or set `timezone` to a zone "
            "that is there"
        ) from error
    starts = [month.start(zone) for month in (query.month, query.month.next)]
    return [(int(start.timestamp()), f"{start:%z}") for start in starts]
