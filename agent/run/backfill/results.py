# SPDX-License-Identifier: MIT
"""The outcome of a loaded month: lines for people, failures, cost. Sent through Redis and kept in the state store.

It holds no secret. Lines are limited in number and length: all lines of a very large month are in the log of its
worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from agent.core.errors import SiteAgentError

LINES_AT_MOST = 400
# A line may name each user of an account.
TEXT_AT_MOST = 1000


class Mark(StrEnum):
    """The kind of a line."""

    START = "start"
    PLAN = "plan"
    MONTH = "month"
    FOUND = "found"
    SENT = "sent"
    DONE = "done"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    END = "end"


@dataclass(frozen=True, slots=True)
class Line:
    mark: Mark
    text: str


class Ending(StrEnum):
    """DONE: all usage is in Waldur. UNKNOWN: the cluster has no records; it may have purged them. HELD: a figure would
    get lower, and was not sent. FAILED: something could not be submitted. AGAIN: another try may work.
    """

    DONE = "done"
    UNKNOWN = "unknown"
    HELD = "held"
    FAILED = "failed"
    AGAIN = "again"


@dataclass(frozen=True, slots=True)
class MonthOutcome:
    """What became of one month, with counts."""

    month: str
    ending: Ending
    # Resources that are active.
    resources: int = 0
    # Resources changed in Waldur.
    submitted: int = 0
    # Figures that got lower.
    lowered: int = 0
    # Resources with usage that Waldur does not take now.
    skipped: int = 0
    # A sentence for each resource with figures that would get lower.
    held: tuple[str, ...] = ()
    # One for each resource that failed, or for the month.
    failures: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    commands: int = 0
    requests: int = 0
    seconds: float = 0.0
    # When it ended.
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    # Transient (AGAIN).
    error: SiteAgentError | None = None

    def after(self, earlier: MonthOutcome | None) -> MonthOutcome:
        """Add what an earlier attempt at the same month has done."""
        if earlier is None:
            return self
        known = set(earlier.lines)
        resources = max(self.resources, earlier.resources)
        return replace(
            self,
            resources=resources,
            submitted=min(resources, self.submitted + earlier.submitted),
            lowered=self.lowered + earlier.lowered,
            held=self.held or (earlier.held if self.error else ()),
            lines=(*earlier.lines, *(line for line in self.lines if line not in known)),
            commands=self.commands + earlier.commands,
            requests=self.requests + earlier.requests,
            seconds=round(self.seconds + earlier.seconds, 3),
        )

    def failed(self, sentence: str) -> MonthOutcome:
        """Return the outcome as a failure that is not tried again."""
        return replace(self, ending=Ending.FAILED, failures=(*self.failures, sentence), error=None)

    def as_json(self, *, with_lines: bool = True) -> dict[str, Any]:
        document: dict[str, Any] = {
            "month": self.month,
            "result": self.ending,
            "resources": self.resources,
            "submitted": self.submitted,
            "lowered": self.lowered,
            "skipped": self.skipped,
            "held": [_cut(sentence) for sentence in self.held],
            "failures": [_cut(sentence) for sentence in self.failures],
            "commands": self.commands,
            "requests": self.requests,
            "seconds": self.seconds,
            "at": self.at.isoformat(timespec="seconds"),
        }
        return {**document, "lines": _shortened(self.lines)} if with_lines else document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MonthOutcome:
        """Read what `as_json` wrote. Raises ValueError, KeyError or TypeError for anything else."""
        at = datetime.fromisoformat(document["at"])
        return cls(
            month=str(document["month"]),
            ending=Ending(document["result"]),
            resources=int(document["resources"]),
            submitted=int(document["submitted"]),
            lowered=int(document["lowered"]),
            skipped=int(document.get("skipped", document.get("left_out", 0))),
            held=tuple(map(str, document.get("held", ()))),
            failures=tuple(map(str, document["failures"])),
            lines=tuple(Line(Mark(mark), str(text)) for mark, text in document.get("lines", ())),
            commands=int(document["commands"]),
            requests=int(document["requests"]),
            seconds=float(document["seconds"]),
            at=at if at.tzinfo else at.replace(tzinfo=UTC),
        )


def _shortened(lines: tuple[Line, ...]) -> list[tuple[str, str]]:
    """Keep warnings and errors before all others, where there are too many."""
    kept = lines
    if len(lines) > LINES_AT_MOST:
        urgent = [line for line in lines if line.mark in (Mark.WARNING, Mark.ERROR)][:LINES_AT_MOST]
        others = [line for line in lines if line.mark not in (Mark.WARNING, Mark.ERROR)]
        kept = (*others[: LINES_AT_MOST - len(urgent)], *urgent)
        left = len(lines) - len(kept)
        kept = (*kept, Line(Mark.INFO, f"{left} more lines are in the log of the worker, at level DEBUG"))
    return [(line.mark, _cut(line.text)) for line in kept]


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_AT_MOST else f"{text[: TEXT_AT_MOST - 1]}\u2026"
