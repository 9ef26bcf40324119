# SPDX-License-Identifier: MIT
"""From sacct's lines to sums: whole TRES-seconds by account and user, in memory that does not grow with the lines.

Jobs that differ in nothing but their time are summed by the text they share, which is read once. An answer counts
whole or not at all: a line that is not what was asked for raises ParseError.

What a suspended job counts (22.05): its ElapsedRaw is without the time in which it was suspended. So counts what it
asked for, as in the reference. Of what it was given, the rollup (sreport) takes that time off cpu only: memory,
nodes and GPUs were kept from others.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from agent.core.errors import ParseError
from agent.core.names import fold
from agent.core.usage import AccountUsage, JobUse, Usage, UsageQuery, UsageSource

log = logging.getLogger(__name__)

TRES_COLUMN = {UsageSource.REQUESTED: "ReqTRES", UsageSource.ALLOCATED: "AllocTRES"}
# States of jobs that hold resources still. What pends counts nothing yet; every other state is an end.
LIVE = frozenset({
    "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED",
})  # fmt: skip
LIVE_KEPT = 20_000
FOLD_AT = 50_000
NOT_SUSPENDED = "00:00:00"

_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]{2,}):([0-9]{2}):([0-9]{2})")
_QUANTITY = re.compile(r"([0-9]+)([KMGTP]?)")
_EXPONENT = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_MEBI = 2
# A sum over the job's time already, and not tracked by every release: no rate that times could multiply.
TOTALS = frozenset({"energy"})

Pairs = tuple[tuple[str, int], ...]
# Counts by account and user.
Sums = dict[tuple[str, str], Counter[str]]


def columns(source: UsageSource) -> str:
    """What sacct is asked for: first what many jobs have in common, then what each has of its own."""
    return f"Account,User,{TRES_COLUMN[source]},State,ElapsedRaw,Suspended,JobIDRaw"


class Tally:
    """Sums of the lines so far."""

    def __init__(self, query: UsageQuery) -> None:
        self.query = query
        self.records = 0
        self._alike: dict[str, int] = {}
        self._suspended: Counter[str] = Counter()
        self._live_alike: set[str] = set()
        self._pairs: dict[str, Pairs] = {}
        self._sums: Sums = {}
        self._live: list[JobUse] = []
        self._live_left_out = 0
        self._without_tres: Counter[str] = Counter()

    def add(self, lines: Iterable[str]) -> None:
        """Count these lines. Raises ParseError, after which nothing here is worth anything."""
        alike, live = self._alike, self._live_alike
        for line in lines:
            self.records += 1
            try:
                job_like, elapsed, suspended, _ = line.rsplit("|", 3)
            except ValueError:
                _foreign(line)
            if not (elapsed.isdecimal() and elapsed.isascii()):
                _foreign(line)
            if job_like not in alike:
                self._meet(job_like, line)
            alike[job_like] += int(elapsed)
            if suspended != NOT_SUSPENDED:
                self._suspended[job_like] += _seconds(suspended, line)
            if job_like in live:
                self._keep(line)

    def jobs(self, lines: Iterable[str]) -> Iterator[JobUse]:
        """The jobs of these lines one by one; nothing is summed."""
        return (self._job(line) for line in lines)

    def usage(self) -> Usage:
        """The month as the lines so far tell it."""
        self._fold()
        if self._without_tres:
            account, seconds = self._without_tres.most_common(1)[0]
            log.warning(
                "sacct shows no %s for some jobs that ran, most of them (%s s) in account %s: they count nothing",
                TRES_COLUMN[self.query.source],
                seconds,
                account,
            )
        if self._live_left_out:
            log.warning("%s live jobs beyond %s are not listed", self._live_left_out, LIVE_KEPT)
        return Usage(self.query, accounts(self._sums), self.records, live=tuple(self._live))

    def _meet(self, job_like: str, line: str) -> None:
        """The first line of its kind: is it one at all?"""
        if len(self._alike) >= FOLD_AT:
            self._fold()
        _, _, tres, state = _common(job_like, line)
        self._read_tres(tres, line)
        if state.partition(" ")[0] in LIVE:
            self._live_alike.add(job_like)
        self._alike[job_like] = 0

    def _keep(self, line: str) -> None:
        if len(self._live) >= LIVE_KEPT:
            self._live_left_out += 1
            return
        job = self._job(line)
        if any(job.counts.values()):
            self._live.append(job)

    def _job(self, line: str) -> JobUse:
        try:
            job_like, elapsed, suspended, job = line.rsplit("|", 3)
        except ValueError:
            _foreign(line)
        if not all(text.isdecimal() and text.isascii() for text in (elapsed, job)):
            _foreign(line)
        account, user, tres, state = _common(job_like, line)
        pairs = self._read_tres(tres, line)
        counts = self._counts(pairs, int(elapsed), _seconds(suspended, line))
        return JobUse(job, fold(account), fold(user), state, int(elapsed), counts)

    def _counts(self, pairs: Pairs, elapsed_s: int, suspended_s: int) -> dict[str, int]:
        kept_s = elapsed_s + (suspended_s if self.query.source is UsageSource.ALLOCATED else 0)
        return {name: value * (elapsed_s if name == "cpu" else kept_s) for name, value in pairs}

    def _read_tres(self, text: str, line: str) -> Pairs:
        if text not in self._pairs:
            self._pairs[text] = tuple(_tres(text, line))
        return self._pairs[text]

    def _fold(self) -> None:
        """Add up what the kinds of jobs so far have counted, and forget the kinds."""
        for job_like, seconds in self._alike.items():
            account, user, tres, _ = job_like.split("|")
            pairs = self._pairs[tres]
            if not pairs and seconds:
                self._without_tres[account] += seconds
            sums = self._sums.setdefault((fold(account), fold(user)), Counter())
            sums.update(self._counts(pairs, seconds, self._suspended[job_like]))
        self._alike.clear()
        self._suspended.clear()
        self._live_alike.clear()
        self._pairs.clear()


def accounts(sums: Sums) -> dict[str, AccountUsage]:
    """Accounts with their users. Jobs without an account, from before there was accounting, are nobody's."""
    users: dict[str, dict[str, Mapping[str, int]]] = {}
    totals: dict[str, Counter[str]] = {}
    for (account, user), counts in sums.items():
        if account:
            users.setdefault(account, {})[user] = dict(counts)
            totals.setdefault(account, Counter()).update(counts)
    return {account: AccountUsage(dict(totals[account]), of_users) for account, of_users in users.items()}


def _common(job_like: str, line: str) -> list[str]:
    parts = job_like.split("|")
    if len(parts) != 4:
        _foreign(line)
    return parts


def _tres(text: str, line: str) -> Iterator[tuple[str, int]]:
    """`cpu=4,mem=2000M,gres/gpu:a100=1`; memory in MiB, as the cluster's limits have it, and burst buffers, too."""
    for pair in filter(None, text.split(",")):
        name, _, value = pair.rpartition("=")
        quantity = _QUANTITY.fullmatch(value)
        if not (name and quantity):
            raise ParseError("sacct", line, f"{pair!r} should read like cpu=4 or mem=2000M")
        if name in TOTALS:
            continue
        whole, unit = quantity.groups()
        exponent = _EXPONENT[unit] - (_MEBI if unit and (name == "mem" or name.startswith("bb/")) else 0)
        yield name, int(whole) << 10 * exponent if exponent >= 0 else int(whole) >> -10 * exponent


def _seconds(clock: str, line: str) -> int:
    """`[D-]HH:MM:SS` of the column Suspended, of which there is no raw form."""
    found = _CLOCK.fullmatch(clock)
    if not found:
        raise ParseError("sacct", line, f"{clock!r} should read like 1-02:03:04")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _foreign(line: str) -> NoReturn:
    raise ParseError("sacct", line, "it is not what was asked for (account, user, TRES, state, times, id)")
