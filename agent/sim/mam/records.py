# SPDX-License-Identifier: MIT
"""Usage records of the stand-in MAM: a line for each job that was charged, in a file of its own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from agent.sim.mam.books import Refused, Row

RECORDS_FILE = "usagerecords"


def add(folder: Path, records: Iterable[tuple[int, str, str, str]]) -> None:
    """Records of moment (seconds since 1970), account, user and charge."""
    with (folder / RECORDS_FILE).open("a", encoding="utf-8") as stream:
        stream.writelines(
            f"{moment}|{account}|{user}|{charge}\n" for moment, account, user, charge in records
        )


def listed(folder: Path, account: str, start: str, end: str) -> Iterator[Row]:
    """Records from `start` to `end`, both inclusive, as local times of the zone that TZ names."""
    first, last = _moment(start), _moment(end)
    path = folder / RECORDS_FILE
    if not path.exists():
        return
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            moment, of_account, user, charge = line.rstrip("\n").split("|")
            if first <= int(moment) <= last and account in ("", of_account):
                yield {"Account": of_account, "User": user, "Charge": charge}


def _moment(text: str) -> int:
    """`2026-05-01T00:00:00`"""
    try:
        day, _, clock = text.partition("T")
        year, month, date = (int(part) for part in day.split("-"))
        hour, minute, second = (int(part) for part in clock.split(":"))
        return int(time.mktime((year, month, date, hour, minute, second, 0, 0, -1)))
    except (ValueError, OverflowError) as error:
        raise Refused(f"{text!r} is no time") from error
