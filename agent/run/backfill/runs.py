# SPDX-License-Identifier: MIT
"""A run of the loader: its months under an id that the same parameters always give, and what was done of it before.

The months that ended are remembered, so that a run which was killed goes on where it was. The months of a run that go
through the queue are in Redis as well (`tasks.month_status`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from agent.core.errors import AnswerTooSlow, SiteAgentError
from agent.core.periods import Month
from agent.run.backfill import month as history
from agent.run.backfill.month import Wish
from agent.run.backfill.results import Ending, Mark, MonthOutcome, outcome_from
from agent.run.backfill.staff import words
from agent.run.site import Site
from agent.run.usage.facts import OfferingPicture
from agent.state import history_runs

ID_LENGTH = 16
# A picture of the offering is as old as that at most when a month is told of.
PICTURE_GOOD_FOR_S = 120.0
# Ten minutes in all: what takes longer is given up for this month, and tried once for each that follows.
WAITS_S = (5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 120.0, 120.0, 120.0)
# The database goes on with a question whose asker was killed: it is asked again as tasks do.
SLOW_WAITS_S = (300.0, 300.0)


@dataclass(frozen=True)
class Run:
    """Months of one offering, oldest first, and what is wanted of them. A run whose decreases are allowed afterwards is
    the same one: it goes on with the months in which some were held.
    """

    offering_uuid: str
    months: tuple[Month, ...]
    wish: Wish

    @property
    def id(self) -> str:
        wish = replace(self.wish, allow_decreases=False).as_json()
        parameters = [self.offering_uuid, [str(month) for month in self.months], wish]
        return sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:ID_LENGTH]


class Audience(Protocol):
    """Whoever is told how a run goes."""

    def begun(self, month: Month, where: str = "") -> None: ...

    def waiting(self, month: Month, reason: str, seconds: float | None = None) -> None:
        """The month is tried again, after so many seconds where that is known."""
        ...

    def ended(self, outcome: MonthOutcome) -> None: ...

    def remark(self, mark: Mark, text: str) -> None:
        """Something about the run as a whole."""
        ...


@dataclass
class Record:
    """The months of a run that ended. Where they cannot be written down, the run goes on without."""

    run: Run
    state_dir: Path
    months: dict[str, MonthOutcome] = field(default_factory=dict)

    def add(self, outcome: MonthOutcome) -> None:
        """A dry run leaves nothing behind."""
        self.months[outcome.month] = outcome
        if self.run.wish.dry_run:
            return
        history_runs.add(
            self.state_dir,
            self.run.id,
            self.run.offering_uuid,
            self.run.wish.as_json(),
            outcome.month,
            outcome.as_json(with_lines=False),
        )

    def begin(self, done: Iterable[MonthOutcome]) -> None:
        """A run begins that goes on from these; all others are forgotten."""
        self.months = {outcome.month: outcome for outcome in done}
        if not self.run.wish.dry_run:
            history_runs.keep(self.state_dir, self.run.id, self.months)


def record_of(run: Run, state_dir: Path) -> Record:
    """What is known of the run; a month that cannot be understood is loaded once more."""
    record = Record(run, state_dir)
    for item in history_runs.months(state_dir, run.id):
        try:
            outcome = outcome_from(item)
        except (ValueError, KeyError, TypeError):
            continue
        record.months[outcome.month] = outcome
    return record


def finished(run: Run, known: Mapping[str, MonthOutcome], zone: tzinfo) -> Mapping[Month, MonthOutcome]:
    """Months that need not be loaded again. One that was loaded before it was over does, one of which the cluster told
    of nothing (its database may have been away), and one in which Waldur took no usage of some resources, erred ones.
    """
    found = {}
    for month in run.months:
        outcome = known.get(str(month))
        if outcome and _is_whole(outcome) and outcome.at >= month.next.start(zone):
            found[month] = outcome
    return found


def _is_whole(outcome: MonthOutcome) -> bool:
    return outcome.ending is Ending.DONE and outcome.resources > 0 and not outcome.left_out


@dataclass
class Here:
    """Months in this process, one after the other. `sleep` is time's, for tests another."""

    site: Site
    run: Run
    record: Record
    audience: Audience
    delay_s: float = 0.0
    sleep: Callable[[float], None] = time.sleep
    # Whether an outage outlasted all patience: then nobody waits that long again, until a month is done.
    is_away: bool = False
    # The database may be at work still on what it was asked last.
    is_slow: bool = False
    _picture: OfferingPicture | None = None
    _pictured_s: float = 0.0

    def load(self, months: tuple[Month, ...]) -> None:
        """What fails stops no other month."""
        for position, month in enumerate(months):
            if position and self.delay_s:
                self.sleep(self.delay_s)
            self.audience.begun(month)
            self._rest(month)
            outcome = self._loaded(month)
            self.record.add(outcome)
            self.audience.ended(outcome)

    def _loaded(self, month: Month) -> MonthOutcome:
        outcome = self._attempt(month)
        tries: Counter[tuple[float, ...]] = Counter()
        while outcome.error is not None and not self.is_away:
            waits_s = _waits_s(outcome.error)
            if tries[waits_s] == len(waits_s):
                break
            wait_s = waits_s[tries[waits_s]]
            tries[waits_s] += 1
            self.audience.waiting(month, words(outcome.error), wait_s)
            self.sleep(wait_s)
            outcome = self._attempt(month).after(outcome)
        self.is_away = outcome.error is not None
        self.is_slow = isinstance(outcome.error, AnswerTooSlow)
        return outcome.failed(words(outcome.error)) if outcome.error else outcome

    def _rest(self, month: Month) -> None:
        """What the month before it asked for, and was given up, comes to its end first."""
        if self.is_slow:
            wait_s = SLOW_WAITS_S[0]
            self.audience.remark(
                Mark.WARNING, f"the database may be busy still: it is asked for {month} in {wait_s:.0f} s"
            )
            self.sleep(wait_s)

    def _attempt(self, month: Month) -> MonthOutcome:
        return history.load_month(self.site, month, self.run.wish, picture=self._look)

    def _look(self) -> OfferingPicture:
        """The offering and its accounts, which are the same for some months that follow each other."""
        now_s = time.monotonic()
        if self._picture is None or now_s - self._pictured_s > PICTURE_GOOD_FOR_S:
            self._picture, self._pictured_s = history.look(self.site, self.run.wish), now_s
        return self._picture


def _waits_s(error: SiteAgentError) -> tuple[float, ...]:
    return SLOW_WAITS_S if isinstance(error, AnswerTooSlow) else WAITS_S
