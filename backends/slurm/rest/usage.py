# SPDX-License-Identifier: MIT
"""Usage through slurmrestd: the jobs of a month as slurmdbd has them, summed as sacct's lines are.

Every run of a requeued job is asked for, with its times as they were: `backends.slurm.tally` cuts them at the month's
borders. A busy month is asked for in pieces: an answer has a bound in bytes, and each job some kilobytes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from agent.core.errors import ParseError
from agent.core.usage import JobUse, Usage, UsageQuery, UsageSource
from backends.slurm.rest.client import AnswerTooLarge, RestClient, items
from backends.slurm.rest.jobs import states
from backends.slurm.rest.rows import counts
from backends.slurm.tally import LIVE, Tally
from backends.zones import window

log = logging.getLogger(__name__)

PATH = "slurmdb/jobs/"
# Named one by one: a single flag takes the place of slurmrestd's usual ones.
WHOLE = (("skip_steps", "true"), ("show_duplicates", "true"), ("disable_truncate_usage_time", "true"))
CUT = (("skip_steps", "true"), ("show_duplicates", "true"))
PIECES_AT_MOST = 1024
NAMED_AT_MOST = 500
EMPTY_PAUSE_S = 0.5
# Before any job of SLURM.
EVER = 946_684_800
KEYS = {UsageSource.REQUESTED: "requested", UsageSource.ALLOCATED: "allocated"}


class RestAccounting:
    """Reads the jobs of one cluster. Remembers into how many pieces its months had to be cut."""

    def __init__(self, client: RestClient, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._pieces = 1

    def usage(self, query: UsageQuery) -> Usage:
        """Return the whole month's usage of all accounts, in TRES-seconds. Raises BackendError.

        An answer without a job is asked for once more: slurmdbd gives one when it failed to read its own database.
        """
        tally = self._tally(query)
        if not tally.records and window(query)[0] <= time.time():
            time.sleep(EMPTY_PAUSE_S)
            tally = self._tally(query)
        return tally.usage()

    def command(self, query: UsageQuery, account: str) -> str:
        """Return the request for one account, as a shell takes it; there slurmdbd cuts the jobs at the borders."""
        since, until = window(query)
        params = (("account", account), *self._params(since, until, CUT))
        return self._client.line("GET", PATH, params)

    def job_uses(self, query: UsageQuery, ids: Sequence[str]) -> list[JobUse]:
        """Return what these jobs count in the month, each run on its own. Raises BackendError."""
        return self._tally(query, ids=set(ids)).kept if ids else []

    def _tally(self, query: UsageQuery, ids: Collection[str] | None = None) -> Tally:
        since, until = window(query)
        tally = Tally(query, (since, until - 1 if query.as_reference else until), ids)
        flags = CUT[:1] + WHOLE[2:] if query.as_reference or query.last_runs_only else WHOLE
        tally.add(self._lines(query, (since, until), flags, ids))
        late = {job for job, _ in tally.needs_truncated_read}
        if late:
            tally.add_truncated(self._lines(query, (since, until), _cut_of(late), late, pieces=False))
        early = {job for job, _ in tally.suspended_at_border}
        if early:
            tally.add_before_window(self._lines(query, (EVER, since), _cut_of(early), early, pieces=False))
        tally.check_complete()
        return tally

    def _lines(
        self,
        query: UsageQuery,
        times: tuple[int, int],
        flags: Sequence[tuple[str, str]],
        ids: Collection[str] | None,
        *,
        pieces: bool = True,
    ) -> Iterator[str]:
        """Yield the jobs in this time, each run once, as lines of sacct. Raises BackendError."""
        seen: set[tuple[str, str]] = set()
        for start, end in self._cut(times, pieces):
            for item in self._jobs(start, end, flags):
                line, run = _line(item, query.source)
                if run not in seen and (ids is None or run[0] in ids):
                    seen.add(run)
                    yield line

    def _jobs(self, start: int, end: int, flags: Sequence[tuple[str, str]]) -> Iterator[Mapping[str, Any]]:
        """Yield the jobs of a time, in more requests where an answer is too large. Raises BackendError."""
        try:
            document = self._client.read(PATH, self._params(start, end, flags))
        except AnswerTooLarge:
            middle = (start + end) // 2
            if (
                (flags[: len(CUT)] == CUT and flags != WHOLE)
                or middle == start
                or self._pieces >= PIECES_AT_MOST
            ):
                raise
            self._pieces *= 2
            log.info("the jobs of a month are asked for in %s pieces from now on", self._pieces)
            yield from self._jobs(start, middle, flags)
            yield from self._jobs(middle, end, flags)
            return
        # An answer that found nothing may come without its list.
        if "jobs" in document or not document.get("errors"):
            yield from items(document, "jobs")

    def _cut(self, times: tuple[int, int], pieces: bool) -> Iterator[tuple[int, int]]:
        start, end = times
        number = self._pieces if pieces else 1
        for piece in range(number):
            yield start + (end - start) * piece // number, start + (end - start) * (piece + 1) // number

    # A bare number is no time before v0.0.42.
    def _params(self, start: int, end: int, flags: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return (("cluster", self._cluster), ("start_time", f"uts{start}"), ("end_time", f"uts{end}"), *flags)


def _cut_of(ids: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return the flags of a truncated read, of these jobs alone where so many fit into an address."""
    return (*CUT, ("step", ",".join(sorted(ids)))) if len(ids) <= NAMED_AT_MOST else CUT


def _line(item: Mapping[str, Any], source: UsageSource) -> tuple[str, tuple[str, str]]:
    """Return a job as sacct would write it, and what distinguishes its runs. Raises ParseError."""
    times, state = item.get("time"), item.get("state")
    association = item.get("association")
    if not (isinstance(times, Mapping) and isinstance(state, Mapping)):
        raise ParseError(PATH, str(item)[:80], "a job has no times, or no state")
    words = states(state.get("current"))
    user = item.get("user") or (association.get("user") if isinstance(association, Mapping) else "")
    tres = item.get("tres")
    used = counts(tres.get(KEYS[source]) if isinstance(tres, Mapping) else None)
    columns = [
        _word(item.get("account")),
        _word(user),
        ",".join(f"{name}={count}" for name, count in used.items()),
        # The flags come last, and sacct shows them instead (REQUEUED, of a run whose job waits again).
        next((word for word in words if word in LIVE), words[-1]),
        _seconds(times, "elapsed"),
        _clock(int(_seconds(times, "suspended"))),
        _seconds(times, "start"),
        _seconds(times, "submission"),
        _seconds(item, "job_id"),
    ]
    return "|".join(columns), (columns[-1], columns[-2])


def _word(value: Any) -> str:
    """Return a name. Raises ParseError for one that would pass for two columns."""
    text = value if isinstance(value, str) else ""
    if "|" in text or "\n" in text:
        raise ParseError(PATH, text, "a name has a sign that no name has")
    return text


def _seconds(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParseError(PATH, str(value), f"{name!r} of a job should be a number")
    return str(value)


def _clock(seconds: int) -> str:
    """`[D-]HH:MM:SS`, as sacct writes a time of suspension."""
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    clock = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
