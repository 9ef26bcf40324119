# SPDX-License-Identifier: MIT
"""Print how a run over past months goes: plain lines in a log; on a terminal signs before them and a bar below.

The lines are those that sites know from the reference's loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from agent.cli.console import CleanConsole
from agent.core.periods import Month
from agent.core.printable import printable
from agent.core.said import Said
from agent.run.backfill.results import Ending, Mark, MonthOutcome

SIGNS: Mapping[Mark, str] = {
    Mark.START: "🚀",
    Mark.PLAN: "📊",
    Mark.MONTH: "📅",
    Mark.FOUND: "📋",
    Mark.SENT: "📤",
    Mark.DONE: "✅",
    Mark.INFO: "\u2139\ufe0f",
    Mark.WARNING: "⚠️",
    Mark.ERROR: "❌",
    Mark.END: "🎉",
}
# Where there are no signs, what needs a look is still marked.
WORDS: Mapping[Mark, str] = {Mark.WARNING: "warning: ", Mark.ERROR: "error: "}
# How months may end where the exit code is 0.
COMPLETE = (Ending.DONE, Ending.UNKNOWN)
REASONS_LISTED = 5


class ProgressView:
    """Prints to `stream` as things happen; months in other hands (`at_once` false) as a block when they end."""

    def __init__(self, stream: TextIO, months: Sequence[Month], *, at_once: bool) -> None:
        self._stream = stream
        self._at_once = at_once
        self._idle = "" if at_once else "waiting"
        self._places = {str(month): place for place, month in enumerate(months, 1)}
        self._has_signs = has_signs(stream)
        # A warning that is the same in every month is printed once.
        self._said = Said()
        self._running: dict[str, str] = {}
        self._bar: Progress | None = None
        if stream.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(
                *columns,
                console=CleanConsole(file=stream),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._task = self._bar.add_task("", total=len(months))

    def __enter__(self) -> ProgressView:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def begun(self, month: Month, where: str = "") -> None:
        if self._at_once:
            self._head(str(month))
        self._running[str(month)] = where
        self._describe()

    def waiting(self, month: Month, reason: str, seconds: float | None = None) -> None:
        when = f" in {seconds:.0f} s" if seconds is not None else " soon"
        self._running.pop(str(month), None)
        self._describe()
        if self._said.news(f"{month} {reason}", "waits") or seconds is not None:
            self.say(Mark.WARNING, f"{month} waits and is tried again{when}: {reason}")

    def ended(self, outcome: MonthOutcome) -> None:
        if not self._at_once:
            self._head(outcome.month)
        for line in outcome.lines:
            if line.mark is not Mark.WARNING or self._said.news(line.text, "warned"):
                self.say(line.mark, line.text)
        if outcome.ending is not Ending.DONE:
            said = {line.text for line in outcome.lines}
            for sentence in outcome.failures:
                if sentence not in said:
                    self.say(Mark.ERROR, f"Failed to process {outcome.month}: {sentence}")
        self._running.pop(outcome.month, None)
        self.advance()

    def skipped(self, month: Month, when: str) -> None:
        self.say(Mark.INFO, f"{month} was loaded on {when}: skipped (--resume)")
        self.advance()

    def advance(self) -> None:
        if self._bar:
            self._bar.advance(self._task)
        self._describe()

    def remark(self, mark: Mark, text: str) -> None:
        self.say(mark, text)

    def say(self, mark: Mark | None, text: str) -> None:
        sign = ""
        if mark is not None:
            sign = f"{SIGNS[mark]} " if self._has_signs else WORDS.get(mark, "")
        if self._bar:
            self._bar.console.print(Text(f"{sign}{text}"), soft_wrap=True)
        else:
            print(printable(f"{sign}{text}"), file=self._stream, flush=True)

    def _head(self, month: str) -> None:
        self.say(Mark.MONTH, f"Processing month {self._places[month]}/{len(self._places)}: {month}")

    def _describe(self) -> None:
        if self._bar:
            words = [f"{month} ({where})" if where else month for month, where in self._running.items()]
            self._bar.update(self._task, description=", ".join(words) or self._idle)


def has_signs(stream: TextIO) -> bool:
    """Signs are for people whose terminal can show them."""
    return stream.isatty() and (stream.encoding or "").lower().replace("-", "") == "utf8"


def closing(outcomes: Sequence[MonthOutcome], *, dry_run: bool) -> Iterator[tuple[Mark | None, str]]:
    """Return the last lines of a run: figures lowered, months unknown, months held for the operator, failures."""
    total = len(outcomes)
    unknown = [outcome for outcome in outcomes if outcome.ending is Ending.UNKNOWN]
    held = [outcome for outcome in outcomes if outcome.held]
    failed = [outcome for outcome in outcomes if outcome.failures]
    if lowered := sum(outcome.lowered for outcome in outcomes):
        verb = "would be" if dry_run else "were"
        months = ", ".join(f"{o.lowered} in {o.month}" for o in outcomes if o.lowered)
        yield Mark.WARNING, f"{lowered} figures {verb} lowered: {months}"
    if unknown:
        yield Mark.WARNING, f"No usage data for {len(unknown)} of {total} months: {_spans(unknown)}"
        yield (
            None,
            "Nothing is sent for these, and --resume asks for them again. If the cluster ran jobs then: try the "
            "command in their lines; look whether the cluster's accounting keeps records of that age, "
            "and whether it is the right cluster",
        )
    if held:
        yield (
            Mark.WARNING,
            f"{len(held)} of {total} months have usage that is held, for figures would get less:",
        )
        yield from _listed(held, lambda outcome: outcome.held)
        yield (
            None,
            "A month counts less when the accounting has purged records of it since, or when it was counted too "
            f"high before. Where the smaller figures are right: the same command with "
            f"{'' if dry_run else '--resume '}--allow-decreases",
        )
    if failed:
        yield Mark.ERROR, f"{len(failed)} of {total} months failed:"
        yield from _listed(failed, lambda outcome: outcome.failures)
        yield None, "The same command with --resume loads these again"
    elif dry_run:
        yield Mark.END, "Dry run completed: nothing was submitted"
    elif not held and len(unknown) < total:
        yield Mark.END, "Historical usage loading completed successfully!"


def _listed(
    outcomes: Sequence[MonthOutcome], of: Callable[[MonthOutcome], Sequence[str]]
) -> Iterator[tuple[None, str]]:
    for outcome in outcomes:
        sentences = of(outcome)
        more = len(sentences) - REASONS_LISTED
        words = "; ".join(sentences[:REASONS_LISTED]) + (f"; and {more} more" if more > 0 else "")
        yield None, f"  {outcome.month}: {words}"


def _spans(outcomes: Sequence[MonthOutcome]) -> str:
    """`2024-01, 2024-03 to 2024-07`: months in their order, neighbours together."""
    spans: list[list[Month]] = []
    for month in (Month.parse(outcome.month) for outcome in outcomes):
        if spans and spans[-1][-1].next == month:
            spans[-1].append(month)
        else:
            spans.append([month])
    return ", ".join(f"{s[0]} to {s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)
