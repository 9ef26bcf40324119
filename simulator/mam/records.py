# SPDX-License-Identifier: MIT
"""Usage records of the stand-in MAM: a line for each job that was charged, in a file of its own."""

from __future__ import annotations

import os
import time

from simulator.mam.books import Refused, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORDS_FILE = "usagerecords"


def add(folder: str, records: Iterable[tuple[int, str, str, str]]) -> None:
    """Records of moment (seconds since 1970), account, user and charge."""
    with open(f"{folder}/{RECORDS_FILE}", "a", encoding="utf-8") as stream:
        stream.writelines(
            f"{moment}|{account}|{user}|{charge}\n" for moment, account, user, charge in records
        )


def listed(folder: str, account: str, start: str, end: str) -> Iterator[Row]:
    """Records from `start` to `end`, both inclusive, as local times of the zone that TZ names."""
    first, last = _moment(start), _moment(end)
    path = f"{folder}/{RECORDS_FILE}"
    return _between(path, account, first, last) if os.path.exists(path) else iter(())


def _between(path: str, account: str, first: int, last: int) -> Iterator[Row]:
    with open(path, encoding="utf-8") as stream:
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
