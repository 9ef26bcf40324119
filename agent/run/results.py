# SPDX-License-Identifier: MIT
"""What became of each order of a pass, and the pass as a whole: for logs, exit codes, retries and `--json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.core.errors import OrderErred, SiteAgentError, WaldurError
from agent.core.plans import Outcome
from agent.plan.policy.gate import HeldPlan, Refused
from agent.run.site import Effort

NAMED_AT_MOST = 5


class Result(StrEnum):
    """DONE and FAILED are final. WAITING needs nobody; RETRY needs time; STUCK needs an operator."""

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
    told of where its resources could not be listed.
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
    somebody. `without`: accounts of which it is told elsewhere.
    """
    found: dict[str, list[str]] = {}
    for each in resources:
        if each.result in (Result.WAITING, Result.STUCK) and each.account not in without:
            found.setdefault(each.message, []).append(each.account or each.resource_uuid)
    return [
        f"{', '.join(accounts[:NAMED_AT_MOST])}"
        f"{f' and {len(accounts) - NAMED_AT_MOST} more' if len(accounts) > NAMED_AT_MOST else ''}: {message}"
        for message, accounts in found.items()
    ]


@dataclass(slots=True)
class PassReport:
    """One pass over one offering. `error` is what ended it before its orders or resources could be looked at.

    `resources` has those that needed something; `in_step` counts the others. `later`: why something beside them
    (a name, a group) is worth another try soon. `homes` counts users by what became of their homes. `problems` says
    what stopped names or groups, and makes the pass a failed one; `home_problems` are told beside it: homes hold
    nothing up. `notes`: what an operator should know, and need not act on; `left_alone`: the same, of what earlier
    passes have told already. `resources_made`: those whose accounts orders have made; `members_due`: those of them
    whose people have got no name yet, for a membership pass.
    """

    mode: str
    offering_uuid: str
    offering_name: str
    orders: list[OrderResult] = field(default_factory=list)
    resources: list[ResourceResult] = field(default_factory=list)
    in_step: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    held: tuple[HeldPlan, ...] = ()
    refused: tuple[Refused, ...] = ()
    effort: Effort = field(default_factory=lambda: Effort(Counter(), Counter()))
    error: SiteAgentError | None = None
    later: SiteAgentError | None = None
    homes: Mapping[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    home_problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_alone: tuple[str, ...] = ()
    resources_made: list[str] = field(default_factory=list)
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
