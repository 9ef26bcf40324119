# SPDX-License-Identifier: MIT
"""What an operator wants to see of a site: passes, stuck orders and their next try, held plans, queues and workers.

Read from the files of this head node; what the broker says comes in as a value. Changes nothing. `status` prints it,
and its pages show the same record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.config.model import Mode, Offering, Settings
from agent.state import drifts, held_plans, left_out, passes, pauses, untold_usage
from agent.state.drifts import Drift
from agent.state.held_plans import Approval, HeldPlans, HeldRow
from agent.state.left_out import LeftOut
from agent.state.store import stamp
from agent.state.untold_usage import UntoldUsage

# A pass that is this late is late: beat's spread, the queue and the pass itself take their time.
LATE_AFTER = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue of the broker. `waiting`: messages that no worker has taken. `workers` by node name."""

    name: str
    waiting: int
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task that a worker has. `since`: when it began; `due`: when it is tried again, for one that waits."""

    name: str
    arguments: tuple[str, ...]
    worker: str
    since: datetime | None = None
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    name: str
    processes: int
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What the broker and the workers say. `problem`: why nothing is known of them; all else is empty then.
    `alone`: the services of this host that need no broker, where none answers.

    `unacknowledged`: messages that a worker has, or had when it was killed. `beats`, `bridges`: hosts or offerings with
    a heartbeat, None where this broker keeps none. `waiting_since`: polls in a queue by (offering, mode).
    """

    url: str = ""
    problem: str = ""
    queues: tuple[QueueStatus, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    running: tuple[TaskStatus, ...] = ()
    scheduled: tuple[TaskStatus, ...] = ()
    unacknowledged: int | None = None
    beats: tuple[str, ...] | None = None
    covered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    waiting_since: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    alone: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _plain(asdict(self))
        waiting = (
            {"offering": uuid, "mode": mode, "since": stamp(since)}
            for (uuid, mode), since in sorted(self.waiting_since.items())
        )
        return {**document, "waiting_since": list(waiting)}


@dataclass(frozen=True, slots=True)
class StuckOrder:
    """An order that the last pass over it did not finish. `result`: `stuck` needs an operator, `retry` time, and
    `waiting` an approval or Waldur. `next_try` None where nobody plans one; `next_by`: who does it.
    """

    uuid: str
    type: str
    result: str
    account: str
    message: str
    since: datetime
    next_try: datetime | None
    next_by: str

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _plain(asdict(self))
        return document


@dataclass(frozen=True, slots=True)
class ModeStatus:
    """One mode of an offering. `passes`: as recorded, newest first. `last_pass`, `last_good`: ends of passes over
    everything; None where none is known. `next_pass`: when the next one is due. `lag`: how late it is, None where it is
    not. `waiting_since`: since when its poll waits in the queue.
    """

    mode: Mode
    period: timedelta
    passes: Sequence[Mapping[str, Any]]
    left_out: LeftOut
    drift: Drift | None
    last_pass: datetime | None
    last_good: datetime | None
    next_pass: datetime | None
    lag: timedelta | None
    waiting_since: datetime | None
    stopped: str

    def as_json(self) -> dict[str, Any]:
        return {
            "period_s": self.period.total_seconds(),
            "last_pass": _stamped(self.last_pass),
            "last_good": _stamped(self.last_good),
            "next_pass": _stamped(self.next_pass),
            "lag_s": self.lag.total_seconds() if self.lag is not None else None,
            "waiting_since": _stamped(self.waiting_since),
            "stopped": self.stopped or None,
        }


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """A held plan of one offering, with its approval if it has one."""

    held: HeldPlans
    plan: HeldRow
    approval: Approval | None

    def as_json(self) -> dict[str, Any]:
        approval = self.approval
        approved = {"by": approval.by, "expires": stamp(approval.expires)} if approval else None
        return {**self.plan.as_json(), "offering_name": self.held.offering.name, "approved": approved}


@dataclass(frozen=True, slots=True)
class OfferingStatus:
    """`paused`: who paused it, why and since when; empty where it is not. `untold`: last usage of ended resources that
    is not in Waldur.
    """

    offering: Offering
    paused: str
    held: tuple[WaitingPlan, ...]
    modes: tuple[ModeStatus, ...]
    stuck: tuple[StuckOrder, ...]
    untold: tuple[UntoldUsage, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "offering": self.offering.uuid,
            "name": self.offering.name,
            "mode": self.offering.policy.mode,
            "paused": self.paused or None,
            "held": [each.as_json() for each in self.held],
            "stuck_orders": [each.as_json() for each in self.stuck],
            "untold_usage": [each.as_json() for each in self.untold],
            "left_out": {each.mode: each.left_out.as_json() for each in self.modes},
            "passes": {each.mode: list(each.passes) for each in self.modes},
            "drift": {each.mode: _drift(each.drift) for each in self.modes},
            "modes": {each.mode: each.as_json() for each in self.modes},
        }


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """All of it, at one moment."""

    looked: datetime
    state_dir: Path
    offerings: tuple[OfferingStatus, ...]
    broker: BrokerStatus

    def as_json(self) -> dict[str, Any]:
        return {
            "looked": stamp(self.looked),
            "state_dir": str(self.state_dir),
            "offerings": [each.as_json() for each in self.offerings],
            "broker": self.broker.as_json(),
        }


def of_site(settings: Settings, offerings: Iterable[Offering], broker: BrokerStatus) -> SiteStatus:
    """Return the status of these offerings. Reads this head node's files only. Raises StateError."""
    now = datetime.now(UTC)
    waiting = waiting_plans(settings)
    return SiteStatus(
        now,
        settings.state_dir,
        tuple(_of_offering(settings, offering, waiting, broker, now) for offering in offerings),
        broker,
    )


def waiting_plans(settings: Settings) -> list[WaitingPlan]:
    """Return the held plans of all offerings. Raises StateError."""
    found: list[WaitingPlan] = []
    for held in held_plans.all_held(settings.state_dir, settings.offerings):
        approvals = {approval.plan: approval for approval in held.approvals.open()}
        found += [WaitingPlan(held, plan, approvals.get(plan.id)) for plan in held.planned()]
    return found


def _of_offering(
    settings: Settings, offering: Offering, waiting: list[WaitingPlan], broker: BrokerStatus, now: datetime
) -> OfferingStatus:
    note = pauses.pause_note(settings.state_dir, offering)
    modes = tuple(
        _of_mode(settings, offering, mode, broker, now) for mode in Mode if offering.backend_of(mode)
    )
    orders = next((each for each in modes if each.mode is Mode.ORDER_PROCESS), None)
    return OfferingStatus(
        offering,
        note or (offering.policy.paused_why if offering.policy.paused else ""),
        tuple(each for each in waiting if each.held.offering is offering),
        modes,
        _stuck(offering, orders, broker) if orders else (),
        tuple(untold_usage.of_offering(settings.state_dir, offering.uuid)),
    )


def _of_mode(
    settings: Settings, offering: Offering, mode: Mode, broker: BrokerStatus, now: datetime
) -> ModeStatus:
    state_dir, periods = settings.state_dir, settings.periods
    ended = passes.last(state_dir, offering.uuid, mode)
    whole = next((entry for entry in ended if not entry.get("subject")), {})
    last_pass = _moment(whole.get("ended"))
    good = (entry.get("last_good") for entry in ended)
    minutes = periods.minutes_of(mode)
    if mode in broker.covered.get(offering.uuid, ()):
        # Its polls are left out but for one in this time: events bring the rest.
        minutes = max(minutes, periods.reconciliation_minutes)
    period = timedelta(minutes=minutes)
    stopped = offering.stopped.get(mode, "")
    due = last_pass + period if last_pass and not stopped else None
    return ModeStatus(
        mode=mode,
        period=period,
        passes=ended,
        left_out=left_out.last(state_dir, offering.uuid, mode),
        drift=drifts.last(state_dir, offering.uuid, mode),
        last_pass=last_pass,
        last_good=next((found for text in good if (found := _moment(text))), None),
        next_pass=due,
        lag=now - due if due and now - due > LATE_AFTER else None,
        waiting_since=broker.waiting_since.get((offering.uuid, mode)),
        stopped=stopped,
    )


def _stuck(offering: Offering, mode: ModeStatus, broker: BrokerStatus) -> tuple[StuckOrder, ...]:
    """Return the orders that are not done by the last pass over each."""
    found: list[StuckOrder] = []
    judged: set[str] = set()
    for entry in mode.passes:
        subject, orders = str(entry.get("subject") or ""), entry.get("orders") or ()
        for order in orders if isinstance(orders, list) else ():
            uuid = str(order.get("order", ""))
            since = _moment(order.get("since"))
            if uuid and uuid not in judged and since:
                next_try, next_by = _next_try(offering, mode, broker, uuid)
                found.append(
                    StuckOrder(
                        uuid,
                        str(order.get("type", "")),
                        str(order.get("result", "")),
                        str(order.get("account", "")),
                        str(order.get("message", "")),
                        since,
                        next_try,
                        next_by,
                    )
                )
            judged.add(uuid)
        judged.add(subject)
        # A pass that looked at all of them: what it does not name is over. One that an error ended looked at none.
        if not subject and entry.get("result") != "ended by an error":
            break
    return tuple(found)


def _next_try(
    offering: Offering, mode: ModeStatus, broker: BrokerStatus, order: str
) -> tuple[datetime | None, str]:
    """Return when an order is tried again, and by whom: a task that comes back by itself, else the next pass."""
    known = (
        task
        for task in broker.scheduled
        if task.due
        and task.name.startswith(f"{mode.mode}.")
        and task.arguments in ((offering.uuid,), (offering.uuid, order))
    )
    soonest = min(known, key=lambda task: task.due or datetime.max.replace(tzinfo=UTC), default=None)
    if soonest is not None and (mode.next_pass is None or (soonest.due and soonest.due < mode.next_pass)):
        return soonest.due, f"a retry of {soonest.name} on {soonest.worker}"
    return mode.next_pass, "the next pass" if mode.next_pass else ""


def _moment(text: Any) -> datetime | None:
    """Return a moment that a pass has written; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None


def _stamped(moment: datetime | None) -> str | None:
    return stamp(moment) if moment else None


def _drift(drift: Drift | None) -> dict[str, Any] | None:
    if drift is None:
        return None
    return {"looked": drift.looked, "since": drift.since or None, "kinds": dict(drift.kinds)}


def _plain(value: Any) -> Any:
    """Return a value as JSON takes it."""
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
