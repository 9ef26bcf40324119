# SPDX-License-Identifier: MIT
"""A run of the loader: its months under an id that the same parameters always give, and the outcomes so far.

Outcomes are remembered in the state store, so that a run which was killed can be resumed. Those of a run that goes
through the queue are in Redis as well (`tasks.queue.month_status`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from agent.core.backoff import RetryPolicy
from agent.core.errors import AnswerTooSlow
from agent.core.periods import Month
from agent.core.retries import AWAY, SLOW
from agent.run.backfill.month import LoadOptions, load_month
from agent.run.backfill.results import Ending, Mark, MonthOutcome
from agent.run.backfill.staff import error_text
from agent.run.site import Site
from agent.run.usage import facts as report_facts
from agent.run.usage.facts import ObservedOffering
from agent.state.hints import HISTORY_MONTHS

ID_LENGTH = 16
# How long resources and accounts that were read are used for the months that follow.
OBSERVATION_VALID_S = 120.0


@dataclass(frozen=True)
class Run:
    """Months of one offering, oldest first, and how they are loaded. The id leaves `allow_decreases` out: with it a run
    goes on with the months that were held.
    """

    offering_uuid: str
    months: tuple[Month, ...]
    options: LoadOptions

    @property
    def id(self) -> str:
        options = replace(self.options, allow_decreases=False).as_json()
        parameters = [self.offering_uuid, [str(month) for month in self.months], options]
        return sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:ID_LENGTH]


class ProgressListener(Protocol):
    """Receives how a run goes."""

    def begun(self, month: Month, where: str = "") -> None: ...

    def waiting(self, month: Month, reason: str, seconds: float | None = None) -> None:
        """Receive that a month is tried again, after so many seconds where that is known."""
        ...

    def ended(self, outcome: MonthOutcome) -> None: ...

    def remark(self, mark: Mark, text: str) -> None:
        """Receive a line about the run as a whole."""
        ...


@dataclass
class RunRecord:
    """The outcomes of a run's months. Where they cannot be written down, the run goes on without."""

    run: Run
    state_dir: Path
    months: dict[str, MonthOutcome] = field(default_factory=dict)

    @classmethod
    def read(cls, run: Run, state_dir: Path) -> RunRecord:
        """Read what is known of the run; a month that cannot be parsed is loaded once more."""
        record = cls(run, state_dir)
        for item in (HISTORY_MONTHS.all(state_dir, run.id) or {}).values():
            try:
                outcome = MonthOutcome.from_json(item)
            except (ValueError, KeyError, TypeError):
                continue
            record.months[outcome.month] = outcome
        return record

    def add(self, outcome: MonthOutcome) -> None:
        """Remember an outcome; in a dry run in memory only."""
        self.months[outcome.month] = outcome
        if not self.run.options.dry_run:
            HISTORY_MONTHS.put(
                self.state_dir, self.run.id, {outcome.month: outcome.as_json(with_lines=False)}
            )

    def begin(self, done: Iterable[MonthOutcome]) -> None:
        """Begin a run that goes on from these outcomes; forget all others."""
        self.months = {outcome.month: outcome for outcome in done}
        if not self.run.options.dry_run:
            known = HISTORY_MONTHS.all(self.state_dir, self.run.id) or {}
            HISTORY_MONTHS.put(self.state_dir, self.run.id, {}, known.keys() - self.months.keys())


def finished(run: Run, known: Mapping[str, MonthOutcome], zone: tzinfo) -> Mapping[Month, MonthOutcome]:
    """Return the months that need not be loaded again.

    Not among them: months loaded before they were over, months of which the cluster had no record (its database may
    have been away), and months with usage of resources that Waldur did not take, such as erred ones.
    """
    found = {}
    for month in run.months:
        outcome = known.get(str(month))
        if outcome is None or outcome.ending is not Ending.DONE or not outcome.resources or outcome.skipped:
            continue
        if outcome.at >= month.next.start(zone):
            found[month] = outcome
    return found


class Destination(Protocol):
    """Where months are loaded."""

    def ended_before(self) -> Mapping[str, MonthOutcome]:
        """Return the months that ended there in an earlier run of the same parameters. Raises SiteAgentError."""
        ...

    def load(self, months: Iterable[Month], *, resumed: bool) -> Iterator[MonthOutcome]:
        """Load the months and yield each as it ends; after one that fails the others are loaded all the same. Raises
        SiteAgentError where none can begin.
        """
        ...

    def under_way(self) -> str:
        """Return what becomes of the months that have not ended when the loader is stopped."""
        ...


@dataclass(frozen=True)
class Loader:
    """Loads months of a run at their destination, and remembers how each ended."""

    record: RunRecord
    listener: ProgressListener
    destination: Destination

    def begin(self, zone: tzinfo, *, resume: bool) -> Mapping[Month, MonthOutcome]:
        """Return the months that `resume` skips; outcomes of all others are forgotten. Raises SiteAgentError."""
        known = self.record.months
        ended = {
            **self.destination.ended_before(),
            **{name: outcome for name, outcome in known.items() if outcome.ending is Ending.DONE},
        }
        done = finished(self.record.run, ended, zone) if resume else {}
        self.record.begin(done.values())
        return done

    def load(self, months: Iterable[Month], *, resumed: bool = False) -> None:
        """Load the months. `resumed`: an earlier loader may have begun them. Raises SiteAgentError."""
        for outcome in self.destination.load(months, resumed=resumed):
            self.record.add(outcome)
            self.listener.ended(outcome)


@dataclass
class InProcess:
    """Loads months in this process, one after the other."""

    site: Site
    options: LoadOptions
    listener: ProgressListener
    delay_s: float = 0.0
    # May be replaced in tests.
    sleep: Callable[[float], None] = time.sleep
    # An outage outlasted all retries: until a month is done, each month is tried once.
    is_away: bool = False
    # The accounting database may still be working on the query that was given up last.
    is_slow: bool = False
    _observed: ObservedOffering | None = None
    _observed_s: float = 0.0

    def ended_before(self) -> Mapping[str, MonthOutcome]:
        return {}

    def under_way(self) -> str:
        return ""

    def load(self, months: Iterable[Month], *, resumed: bool) -> Iterator[MonthOutcome]:
        for position, month in enumerate(months):
            if position and self.delay_s:
                self.sleep(self.delay_s)
            self.listener.begun(month)
            if self.is_slow:
                wait_s = SLOW.backoff.wait_s(0, spread=0)
                self.listener.remark(
                    Mark.WARNING, f"the database may be busy still: it is asked for {month} in {wait_s:.0f} s"
                )
                self.sleep(wait_s)
            yield self._load_with_retries(month)

    def _load_with_retries(self, month: Month) -> MonthOutcome:
        """Load a month. After the last attempt it is given up, and each month that follows is tried once."""
        outcome = self._attempt(month)
        retries: Counter[RetryPolicy] = Counter()
        while outcome.error is not None and not self.is_away:
            policy = SLOW if isinstance(outcome.error, AnswerTooSlow) else AWAY
            if retries[policy] == policy.attempts - 1:
                break
            wait_s = policy.backoff.wait_s(retries[policy], spread=0)
            retries[policy] += 1
            self.listener.waiting(month, error_text(outcome.error), wait_s)
            self.sleep(wait_s)
            outcome = self._attempt(month).after(outcome)
        self.is_away = outcome.error is not None
        self.is_slow = isinstance(outcome.error, AnswerTooSlow)
        return outcome.failed(error_text(outcome.error)) if outcome.error else outcome

    def _attempt(self, month: Month) -> MonthOutcome:
        return load_month(self.site, month, self.options, observe=self._observe)

    def _observe(self) -> ObservedOffering:
        """Return the offering's resources and accounts, read at most OBSERVATION_VALID_S ago."""
        now_s = time.monotonic()
        if self._observed is None or now_s - self._observed_s > OBSERVATION_VALID_S:
            self._observed = report_facts.offering(self.site, with_users=self.options.with_users)
            self._observed_s = now_s
        return self._observed
