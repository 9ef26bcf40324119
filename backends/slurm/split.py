# SPDX-License-Identifier: MIT
"""Part the lines of sacct at a moment: jobs that ended before it, whose figures are final, and all others.

sacct shows the jobs that ended at its start time or later, and those without an end (22.05: `time_end >= start OR
time_end = 0`). So what one read finds ended before a moment, and another read that starts with it finds, are together
the month. That holds as long as no job went from one side to the other in between. A job that was on the other side
and had begun stays there: a fingerprint of these jobs shows whether the second read saw the same ones. It changes where
such a job is reported to slurmdbd late, where one gets an end in the past, is deleted, or is missing in an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from agent.core.errors import ParseError
from agent.core.usage import Usage
from backends.command_output import is_whole
from backends.slurm.tally import Tally

BATCH = 10_000
# A job has not ended.
NO_END = "Unknown"
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class SplitUsage:
    """The usage of a month, parted at a moment."""

    # Of the jobs that ended before the moment.
    ended: Usage
    others: Usage
    # Fingerprint of other jobs that had begun.
    watched: str


class Split:
    """One read, parted at `before`. `ended` counts the jobs that ended before it. Others that began before `watched`
    are in the fingerprint; those that ended before `since`, the begin of the month, are not counted. All three are
    epoch seconds.
    """

    def __init__(self, before: int, watched: int, since: int, ended: Tally) -> None:
        self._before = before
        self._watched = watched
        self._since = since
        self._ended = ended
        self._batch: list[str] = []
        self._count = 0
        self._digest = 0

    @property
    def watched(self) -> str:
        """Return the number of jobs that are watched, and a sum of their hashes, which no order changes."""
        return f"{self._count} {self._digest:x}"

    def others(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the jobs that ended later or not at all, without the last column, End. Raises ParseError."""
        before, since, batch = self._before, self._since, self._batch
        for line in lines:
            job, _, end = line.rpartition("|")
            if is_whole(end):
                ended = int(end)
                if ended < before:
                    batch.append(job)
                    if len(batch) >= BATCH:
                        self._ended.add(batch)
                        batch.clear()
                    continue
                if ended < since:
                    self._note(job)
                    continue
            elif end != NO_END:
                raise ParseError("sacct", line, f"{end!r} is not the end of a job")
            self._note(job)
            yield job

    def finish(self) -> None:
        """Count what is left of the jobs that ended. Raises ParseError."""
        self._ended.add(self._batch)
        self._batch.clear()

    def _note(self, job: str) -> None:
        """Take in a job that is watched. Its number and time of submission never change. Raises ParseError."""
        parts = job.rsplit("|", 3)
        if len(parts) != 4:
            raise ParseError("sacct", job, "it has fewer columns than were asked for")
        _, start, submit, number = parts
        if not (start.isdecimal() and 0 < int(start) < self._watched):
            return
        self._count += 1
        found = blake2b(f"{number} {submit}".encode(), digest_size=DIGEST_BYTES).digest()
        self._digest = (self._digest + int.from_bytes(found)) % (1 << 8 * DIGEST_BYTES)
