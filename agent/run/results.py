# SPDX-License-Identifier: MIT
"""What became of each order of a pass, and the pass as a whole: for logs, exit codes, retries and `--json`.

How a pass ended is recorded for `status`, and what it did for the metrics: both in the state file. What cannot be
written is a warning.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.core.errors import OrderErred, SiteAgentError, WaldurError
from agent.core.plans import Outcome
from agent.core.printable import shortlist
from agent.plan.policy.gate import HeldPlan, Refused
from agent.run.site import Effort
from agent.state import passes
from agent.state.passes import SECONDS_UP_TO, Figure
from agent.state.store import stamp

NAMED_AT_MOST = 5
FAILURES_SHOWN = 10
NOTES_SHOWN = 5
ORDERS_KEPT = 100
# What may stand in the path of a request as it is; whatever else does is an identifier.
_WORD = re.compile(r"[a-z_-]{1,60}|\{uuid\}|")


class Result(StrEnum):
    """DONE and FAILED are final. WAITING needs no person; RETRY needs time; STUCK needs an operator."""

    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"
    RETRY = "retry"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class OrderResult:
    order_uuid: str
    type: str
    result: Result
    account: str = ""
    message: str = ""
    error: SiteAgentError | None = None

    def as_json(self) -> dict[str, str]:
        return {
            "order": self.order_uuid,
            "type": self.type,
            "result": self.result,
            "account": self.account,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """What became of a resource that was not in step already, or could not be brought there; of a project that an event
    named where its resources could not be listed.
    """

    resource_uuid: str
    result: Result
    account: str = ""
    message: str = ""
    error: SiteAgentError | None = None

    def as_json(self) -> dict[str, str]:
        return {
            "resource": self.resource_uuid,
            "result": self.result,
            "account": self.account,
            "message": self.message,
        }


def postponed(error: SiteAgentError) -> Result:
    """Return what an error makes of an order. 409: the order or resource has moved on, the next pass sees where to."""
    if isinstance(error, OrderErred):
        return Result.FAILED
    if isinstance(error, WaldurError) and error.status == 409:
        return Result.WAITING
    return Result.RETRY if error.retryable else Result.STUCK


def waits(resources: Iterable[ResourceResult], *, without: Collection[str] = ()) -> list[str]:
    """Return for whom a pass waits and why, a sentence for all accounts with the same reason: those that wait, or need
    an operator. `without`: accounts whose reasons are printed elsewhere.
    """
    found: dict[str, list[str]] = {}
    for each in resources:
        if each.result in (Result.WAITING, Result.STUCK) and each.account not in without:
            found.setdefault(each.message, []).append(each.account or each.resource_uuid)
    return [f"{shortlist(accounts, NAMED_AT_MOST)}: {message}" for message, accounts in found.items()]


@dataclass(slots=True)
class PassReport:
    """One pass over one offering."""

    mode: str
    offering_uuid: str
    offering_name: str
    orders: list[OrderResult] = field(default_factory=list)
    # Those that needed something.
    resources: list[ResourceResult] = field(default_factory=list)
    # How many needed nothing.
    in_step: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    effort: Effort = field(default_factory=lambda: Effort(Counter(), Counter()))
    # What ended it before its orders or resources could be looked at.
    error: SiteAgentError | None = None
    # Why something besides orders and resources (a name, a group) is worth another try soon.
    later: SiteAgentError | None = None
    # Users by what became of their homes.
    homes: Mapping[str, int] = field(default_factory=dict)
    # What stopped names or groups, and makes the pass a failed one.
    problems: list[str] = field(default_factory=list)
    # Printed in addition: homes hold nothing up.
    home_problems: list[str] = field(default_factory=list)
    # What an operator should know, and need not act on.
    notes: list[str] = field(default_factory=list)
    # Notes that earlier passes have logged already.
    left_alone: tuple[str, ...] = ()
    # Those whose accounts orders have made.
    resources_made: list[str] = field(default_factory=list)
    # Resources made whose people have got no name yet, for a membership pass.
    members_due: list[str] = field(default_factory=list)

    @property
    def retryable_error(self) -> SiteAgentError | None:
        """The first reason to come back soon; None when waiting for the next period is right."""
        if self.error is not None:
            return self.error if self.error.retryable else None
        return next((o.error for o in self.results if o.result is Result.RETRY and o.error), self.later)

    @property
    def results(self) -> list[OrderResult | ResourceResult]:
        return [*self.orders, *self.resources]

    @property
    def failed(self) -> bool:
        """Whether an operator should look: something did not work that is not an order's own fault."""
        is_stopped = self.error is not None or bool(self.problems)
        return is_stopped or any(o.result in (Result.RETRY, Result.STUCK) for o in self.results)

    def counted(self) -> Counter[str]:
        return Counter(o.result.value for o in self.results)

    def as_json(self) -> dict[str, Any]:
        return {
            "offering": self.offering_uuid,
            "name": self.offering_name,
            "mode": self.mode,
            "orders": [o.as_json() for o in self.orders],
            "resources": [r.as_json() for r in self.resources],
            "in_step": self.in_step,
            "homes": dict(self.homes),
            "problems": [*self.problems, *self.home_problems],
            "notes": [*self.notes, *self.left_alone],
            "actions": [
                {**o.action.as_json(), "error": str(o.error) if o.error else None} for o in self.outcomes
            ],
            **withheld(self.held, self.refused),
            "commands": dict(self.effort.commands),
            "requests": dict(self.effort.requests),
            "seconds": round(self.effort.seconds, 3),
            "error": str(self.error) if self.error else None,
        }


def withheld(held: Iterable[HeldPlan], refused: Iterable[Refused]) -> dict[str, Any]:
    """Return what the policy keeps from happening, for `--json`."""
    return {
        "held": [
            {
                "id": plan.id,
                "scope": plan.scope,
                "reason": plan.reason,
                "actions": [action.as_json() for action in plan.actions],
            }
            for plan in held
        ],
        "refused": [{**r.action.as_json(), "why": r.why, "sentence": r.sentence} for r in refused],
    }


def summary(reports: Iterable[PassReport]) -> dict[str, Any]:
    """Return one object for a whole run: totals first, then each offering."""
    listed = list(reports)
    totals: dict[str, Counter[str]] = {
        name: Counter() for name in ("orders", "resources", "actions", "commands", "requests")
    }
    for report in listed:
        totals["orders"] += Counter(o.result.value for o in report.orders)
        totals["resources"] += Counter(r.result.value for r in report.resources)
        totals["resources"] += Counter({"in step": report.in_step} if report.in_step else {})
        totals["actions"] += Counter(o.action.verb for o in report.outcomes if o.done)
        totals["commands"] += report.effort.commands
        totals["requests"] += report.effort.requests
    return {
        **{name: dict(sorted(counts.items())) for name, counts in totals.items()},
        "failures": sum(report.failed for report in listed),
        "seconds": round(sum(report.effort.seconds for report in listed), 3),
        "offerings": [report.as_json() for report in listed],
    }


def record(state_dir: Path, report: PassReport, *, subject: str = "") -> None:
    """Write down a pass. `subject`: the order or resource it was about, empty for all of them."""
    result = "something failed" if report.failed else "ok"
    ended = stamp(datetime.now(UTC))
    is_good = not subject and not report.failed
    unfinished = [order for order in report.orders if order.result not in (Result.DONE, Result.FAILED)]
    # A good pass over everything that leaves nothing open needs no word of those before it.
    is_new = is_good and not unfinished
    before = [] if is_new else passes.last(state_dir, report.offering_uuid, report.mode)
    entry = {
        "ended": ended,
        # Only ten passes are kept: this is of the last that was good, however long ago.
        "last_good": ended if is_good else (before[0].get("last_good") if before else None),
        "seconds": round(report.effort.seconds, 1),
        "subject": subject,
        "result": "ended by an error" if report.error is not None else result,
        "results": dict(report.counted()),
        "in_step": report.in_step,
        "actions": sum(outcome.done for outcome in report.outcomes),
        "kinds": dict(Counter(outcome.action.verb for outcome in report.outcomes if outcome.done)),
        "homes": dict(report.homes),
        "held": [plan.id for plan in report.held],
        "failures": _failures(report),
        "notes": report.notes[:NOTES_SHOWN],
        # Other passes print it at the order or plan.
        "waits": waits(each for each in report.resources if each.error is None)[:FAILURES_SHOWN]
        if report.mode == Mode.REPORT
        else [],
        "orders": _with_age(unfinished, before, ended),
    }
    passes.add(state_dir, report.offering_uuid, report.mode, entry, sums(report, is_whole=not subject))


def _failures(report: PassReport) -> list[str]:
    """Return what went wrong in a pass, a sentence each, as many as `status` shows."""
    failures = [str(report.error)] if report.error else []
    failures += [f"order {o.order_uuid} {o.result}: {o.message}" for o in report.orders if o.error]
    failures += [f"resource {r.resource_uuid} {r.result}: {r.message}" for r in report.resources if r.error]
    failures += map(str, (*report.problems, *report.home_problems))
    return failures[:FAILURES_SHOWN]


def _with_age(
    orders: Sequence[OrderResult], before: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, str]]:
    """Return orders that wait or are stuck, each with the time since which passes have found it so."""
    since: dict[str, str] = {}
    for entry in before:
        for order in entry.get("orders") or ():
            since.setdefault(order.get("order", ""), order.get("since", now))
    return [{**order.as_json(), "since": since.get(order.order_uuid, now)} for order in orders[:ORDERS_KEPT]]


def count(state_dir: Path, report: PassReport) -> None:
    """Add what was done in addition to the passes over orders, members and usage to the sums."""
    passes.add_counts(state_dir, report.offering_uuid, report.mode, _work(report))


def sums(report: PassReport, *, is_whole: bool) -> dict[tuple[Figure, str, str], float]:
    """Return what a pass adds to the sums of its offering and mode; how long it took only for one over everything."""
    found = _work(report)
    kind = "all" if is_whole else "part"
    outcome = "error" if report.error is not None else "failed" if report.failed else "ok"
    found[Figure.PASSES, kind, outcome] = 1
    for order in report.orders:
        found[Figure.RESULTS, "order", order.result] += 1
    for resource in report.resources:
        found[Figure.RESULTS, "resource", resource.result] += 1
    if is_whole:
        seconds = report.effort.seconds
        bound = next((bound for bound in SECONDS_UP_TO if seconds <= bound), float("inf"))
        found[Figure.SECONDS_UP_TO, str(bound), ""] = 1
        found[Figure.SECONDS, "", ""] = seconds
    return found


def _work(report: PassReport) -> dict[tuple[Figure, str, str], float]:
    found: dict[tuple[Figure, str, str], float] = defaultdict(float)
    for outcome in report.outcomes:
        name = type(outcome.action).__name__
        found[Figure.ACTIONS, name, "done" if outcome.done else "failed"] += 1
    for request, number in report.effort.requests.items():
        found[Figure.REQUESTS, _bounded(request), ""] += number
    for command, number in report.effort.commands.items():
        found[Figure.COMMANDS, command, ""] += number
    return found


def _bounded(request: str) -> str:
    """Return the method and path of a request without names in it, of which there may be any number."""
    method, _, path = request.partition(" ")
    return f"{method} {'/'.join(p if _WORD.fullmatch(p) else '{id}' for p in path.split('/'))}"
