# SPDX-License-Identifier: MIT
"""slurmdbd's table of jobs in memory, which answers as sacct, sdiag and sacctmgr of 22.05 do, and histories of it.

The condition is that of slurmdbd's own SQL: `time_eligible AND time_eligible < end AND (time_end >= start OR time_end =
0)`. tests/backends/slurm/test_count_real.py puts the same rows into the real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from agent.core.periods import Month
from backends.process import Completed, Runner

HOUR = 3600
ACCOUNTS = ("a", "b", "c")
USERS = ("ann", "bob", "cem")


@dataclass(eq=False)
class Row:
    """One run of a job; moments are epoch seconds, 0 for what has not happened. `paused`: one suspension."""

    id: int
    account: str
    user: str
    cpus: int
    submit: int
    eligible: int
    start: int = 0
    end: int = 0
    state: str = "PENDING"
    paused: tuple[int, int] = (0, 0)


class JobTable(Runner):
    """`queue` is what sdiag shows; `now` the time of slurmctld; `names`: new names of users; `renamed`: when they got
    them. `failing` is a program; `printed` counts sacct's lines; `cut`: after how many lines the next answers end.
    """

    def __init__(self, now: int) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.now = now
        self.queue = 0
        self.names: dict[str, str] = {}
        self.renamed: list[int] = []
        self.failing = ""
        self.printed = 0
        self.cut: list[int] = []

    def read(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, **_: object
    ) -> Completed:
        self.executed["read"] += 1
        if command[0] == self.failing:
            return Completed(tuple(command), 1, "", "no answer", 0.0)
        if command[0].endswith("sdiag"):
            said = f"sdiag output at some day ({self.now})\nAgent queue size: 9\nDBD Agent queue size: {self.queue}\n"
        else:
            (start,) = (word.partition("=")[2] for word in command if word.startswith("start="))
            # Behind a prefix the zone of that host counts, where the call names none.
            zone = ZoneInfo((environment or {}).get("TZ", "America/Los_Angeles"))
            since = datetime.fromisoformat(start).replace(tzinfo=zone).timestamp()
            said = "default_acct='a'\n" + "name='new'\n" * sum(moment >= since for moment in self.renamed)
        return Completed(tuple(command), 0, said, "", 0.0)

    def lines(
        self, command: Sequence[str], *, environment: Mapping[str, str] | None = None, **_: object
    ) -> Generator[str, None, Completed]:
        self.executed["read"] += 1
        words = dict(word.removeprefix("--").partition("=")[::2] for word in command[1:])
        zone = ZoneInfo((environment or {})["TZ"])
        start, end = (
            int(datetime.fromisoformat(words[key]).replace(tzinfo=zone).timestamp())
            for key in ("starttime", "endtime")
        )
        if start > end:
            return Completed(tuple(command), 1, "", "Start time requested is after end time", 0.0)
        jobs = words.get("jobs")
        found = [
            row
            for row in self.rows
            if row.eligible and row.eligible < end and (not row.end or row.end >= start)
        ]
        if self.cut:
            found = found[: self.cut.pop(0)]
        for row in found:
            if jobs is None or str(row.id) in jobs.split(","):
                cut = (start, end) if "truncate" in words else (0, 1 << 40)
                columns = self._columns(row, *cut)
                yield "|".join(columns[column] for column in words["format"].split(","))
                self.printed += 1
        if self.failing == "sacct":
            said = "slurm_persist_conn_open: Something happened: Connection refused"
            return Completed(tuple(command), 1, "", f"sacct: error: {said}", 0.0)
        return Completed(tuple(command), 0, "", "", 0.0)

    def _columns(self, row: Row, since: int, until: int) -> dict[str, str]:
        def inside(begin: int, end: int) -> int:
            return max(0, min(end, until) - max(begin, since)) if begin else 0

        end = row.end or self.now
        paused_s = inside(*row.paused) if row.start else 0
        return {
            "Account": row.account,
            "User": self.names.get(row.user, row.user),
            **dict.fromkeys(("ReqTRES", "AllocTRES"), f"cpu={row.cpus},mem={row.cpus}G,node=1"),
            "State": row.state,
            "ElapsedRaw": str(max(0, inside(row.start, end) - paused_s)),
            "Suspended": f"{paused_s // HOUR:02}:{paused_s // 60 % 60:02}:{paused_s % 60:02}",
            "Start": str(max(row.start, since)) if row.start else "Unknown",
            "Submit": str(row.submit),
            "JobIDRaw": str(row.id),
            "Eligible": str(row.eligible),
            "End": str(min(row.end, until)) if row.end else "Unknown",
        }


class History:
    """What happens on a cluster, at random and repeatable. `now` is the agent's clock; slurmctld's may differ by hours.

    While slurmdbd is away slurmctld keeps what it has to report, and reports it afterwards.
    """

    def __init__(self, seed: int, start: int) -> None:
        self.draw = random.Random(seed)
        self.now = start
        self.table = JobTable(start)
        self._ahead_s = 0
        self._is_away = False
        self._unreported: list[Callable[[], object]] = []
        self._next_id = 1
        # What slurmctld knows, whatever was reported to slurmdbd.
        self._waiting: list[Row] = []
        self._running: list[Row] = []

    @property
    def moment(self) -> int:
        """Return the time by the clock of slurmctld."""
        return self.now + self._ahead_s

    def step(self) -> None:
        """Let some minutes or hours pass with what happens in them, each job within its own time."""
        for _ in range(self.draw.randrange(1, 7)):
            self.now += self.draw.choice((1, 60, 700, 1800, 2 * HOUR))
            act = self.draw.choices((self._submit, self._begin, self._end, self._odd), (4, 6, 5, 2))[0]
            act()
        self.table.now = self.moment
        self.table.queue = len(self._unreported)

    def odd_kinds(self) -> Sequence[Callable[[], None]]:
        return (
            *(self._requeue, self._suspend, self._kill_suspended, self._fix_runaway, self._delete_running),
            *(self._lose_slurmdbd, self._find_slurmdbd, self._find_slurmdbd, self._set_clock),
        )

    def _odd(self) -> None:
        self.draw.choice(self.odd_kinds())()

    def _report(self, change: Callable[[], object]) -> None:
        if self._is_away:
            self._unreported.append(change)
        else:
            change()

    def _new(self, **known: int | str) -> Row:
        row = Row(
            self._next_id,
            self.draw.choice(ACCOUNTS),
            self.draw.choice(USERS),
            self.draw.randrange(1, 5),
            self.moment,
            self.moment,
        )
        self._next_id += 1
        for name, value in known.items():
            setattr(row, name, value)
        return row

    def _submit(self) -> None:
        """Submit a job, a held one, or an array, whose tasks get a row each when they begin."""
        kind = self.draw.randrange(4)
        if kind < 3:
            row = self._new()
            if kind == 0:
                row.eligible = 0
            self._report(lambda: self.table.rows.append(row))
            self._waiting.append(row)
        else:
            self._waiting += [self._new() for _ in range(self.draw.randrange(1, 6))]

    def _begin(self) -> None:
        if self._waiting:
            row = self._waiting.pop(self.draw.randrange(len(self._waiting)))
            start = self.moment

            def change() -> None:
                if row not in self.table.rows:
                    self.table.rows.append(row)
                row.start, row.state, row.eligible = start, "RUNNING", row.eligible or start

            self._report(change)
            self._running.append(row)

    def _end(self, state: str = "COMPLETED", end: int | None = None) -> Row | None:
        if not self._running:
            return None
        row = self._running.pop(self.draw.randrange(len(self._running)))
        moment = self.moment if end is None else end

        def change() -> None:
            row.end, row.state = max(moment, row.start), state

        self._report(change)
        return row

    def _requeue(self) -> None:
        row = self._end("REQUEUED")
        if row is not None:
            again = self._new(id=row.id, account=row.account, user=row.user)
            self._report(lambda: self.table.rows.append(again))
            self._waiting.append(again)

    def _suspend(self) -> None:
        """A job was suspended for a while, and goes on."""
        fit = [
            row for row in self._running if row.start and row.start < self.moment - 10 and not row.paused[0]
        ]
        if fit:
            row = self.draw.choice(fit)
            begin = self.draw.randrange(row.start + 1, self.moment)
            paused = (begin, self.draw.randrange(begin, self.moment) + 1)
            self._report(lambda: setattr(row, "paused", paused))

    def _kill_suspended(self) -> None:
        """Such a job ended when it was suspended, maybe long ago."""
        self._end("CANCELLED", self.moment - self.draw.randrange(20 * HOUR))

    def _fix_runaway(self) -> None:
        """slurmctld had forgotten the job; `sacctmgr show runaway` ends it where it began."""
        if self._running:
            row = self._running.pop(self.draw.randrange(len(self._running)))
            if row.start:
                row.end, row.state = row.start, "COMPLETED"

    def _delete_running(self) -> None:
        if self._running:
            row = self._running.pop(self.draw.randrange(len(self._running)))
            if row in self.table.rows:
                self.table.rows.remove(row)

    def _lose_slurmdbd(self) -> None:
        self._is_away = True

    def _find_slurmdbd(self) -> None:
        self._is_away = False
        for change in self._unreported:
            change()
        self._unreported.clear()

    def _set_clock(self) -> None:
        """The clock of slurmctld is up to five hours off."""
        self._ahead_s = self.draw.randrange(-5, 6) * HOUR

    def rename(self) -> None:
        user = self.draw.choice(USERS)
        self.table.names[user] = f"{user}{self.now}"
        self.table.renamed.append(self.now)


def month_of(moment: int, zone: str) -> Month:
    return Month.of(datetime.fromtimestamp(moment, ZoneInfo(zone)))
