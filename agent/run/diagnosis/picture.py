# SPDX-License-Identifier: MIT
"""The picture of a site at one moment: passes, stuck orders, held plans, heartbeats, queues, workers.

Read from the files of this head node; what the broker says comes in as a value. Changes nothing. `status` and its page
show this record; `doctor` shows its faults (`faults`) with those of the host and of Waldur, and the metrics its figures
(`figures`) with those of the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.config.model import Mode, Offering, Settings
from agent.core.errors import StateError
from agent.host import heartbeat, running
from agent.host.heartbeat import LastHeartbeat
from agent.state import held_plans, passes, pauses, unreported_usage
from agent.state.held_plans import Approval, HeldPlans, HeldRow
from agent.state.hints import DRIFTS, SKIPPED, Drift, Skipped
from agent.state.passes import Count
from agent.state.store import Db, Source, reading, stamp
from agent.state.unreported_usage import UnreportedUsage

# A pass that is this late is late: beat's spread, the queue and the pass itself take their time.
LATE_AFTER = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue of the broker."""

    name: str
    # Messages that no worker has taken; None where the broker does not say.
    waiting: int | None
    # By node name, None where they were not asked.
    workers: tuple[str, ...] | None = ()
    # Those that wait, where the broker reports it.
    by_priority: Mapping[int, int] = field(default_factory=dict)
    # When the message that waits longest was sent.
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """A task that a worker has."""

    name: str
    arguments: tuple[str, ...]
    worker: str
    # When it began.
    since: datetime | None = None
    # When it is tried again, for one that waits.
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    name: str
    processes: int
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What the broker and the workers say."""

    url: str = ""
    # Why nothing is known of them; all else but the services without a broker is empty then.
    problem: str = ""
    queues: tuple[QueueStatus, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    running: tuple[TaskStatus, ...] = ()
    scheduled: tuple[TaskStatus, ...] = ()
    # Messages that a worker has, or had when it was killed.
    unacknowledged: int | None = None
    # Hosts or offerings with a heartbeat, None where this broker keeps none.
    beats: tuple[str, ...] | None = None
    covered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Polls in a queue by (offering, mode).
    waiting_since: Mapping[tuple[str, str], datetime] = field(default_factory=dict)
    # The services of this host that need no broker, where nothing else of the site runs here.
    alone: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _plain(asdict(self))
        waiting = (
            {"offering": uuid, "mode": mode, "since": stamp(since)}
            for (uuid, mode), since in sorted(self.waiting_since.items())
        )
        return {**document, "waiting_since": list(waiting)}


def without_broker(settings: Settings) -> BrokerStatus | None:
    """Return what is to be said of the broker where services of one process, which need none, are all agents of this
    host that have this configuration; else None. Who asks first needs no library of a broker there.
    """
    alone = running.services_alone(settings.source, running.agents())
    if not alone:
        return None
    said = f"no broker is needed: waldur_site_agent ({', '.join(alone)}) keeps its queue in its own memory"
    return BrokerStatus(str(settings.broker_url), said, alone=alone)


@dataclass(frozen=True, slots=True)
class StuckOrder:
    """An order that the last pass over it did not finish."""

    uuid: str
    type: str
    # `stuck` needs an operator, `retry` time, and `waiting` an approval or Waldur.
    result: str
    account: str
    message: str
    since: datetime
    # None where none is planned.
    next_try: datetime | None
    # Who does it.
    next_by: str

    def as_json(self) -> dict[str, Any]:
        document: dict[str, Any] = _plain(asdict(self))
        return document


@dataclass(frozen=True, slots=True)
class ModeStatus:
    """One mode of an offering."""

    mode: Mode
    period: timedelta
    # As recorded, newest first.
    passes: Sequence[Mapping[str, Any]]
    skipped: Skipped
    drift: Drift | None
    # End of the last pass over everything, and of the last good one; None where none is known.
    last_pass: datetime | None
    last_good: datetime | None
    # When the next one is due.
    next_pass: datetime | None
    # How late it is, None where it is not.
    lag: timedelta | None
    # Since when its poll waits in the queue.
    waiting_since: datetime | None
    stopped: str

    @property
    def whole(self) -> Mapping[str, Any]:
        """Return what is written of the last pass over everything; nothing where none is known."""
        return next((entry for entry in self.passes if not entry.get("subject")), {})

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
class UnplannedApproval:
    """An approval of actions that no pass plans now: one that plans them again carries them out."""

    mode: str
    approval: Approval


@dataclass(frozen=True, slots=True)
class OfferingStatus:
    """One offering of this host."""

    offering: Offering
    # Who paused it, why and since when; empty where it is not.
    paused: str
    held: tuple[WaitingPlan, ...]
    modes: tuple[ModeStatus, ...]
    stuck: tuple[StuckOrder, ...]
    # Last usage of ended resources that is not in Waldur.
    unreported: tuple[UnreportedUsage, ...] = ()
    # What passes did since the state file was made.
    sums: tuple[Count, ...] = ()
    approvals: tuple[UnplannedApproval, ...] = ()

    def plan_of(self, order: StuckOrder) -> WaitingPlan | None:
        """Return the held plan that an order waits for, if any."""
        return next((each for each in self.held if each.plan.short_id in order.message), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "offering": self.offering.uuid,
            "name": self.offering.name,
            "mode": self.offering.policy.mode,
            "paused": self.paused or None,
            "held": [each.as_json() for each in self.held],
            "stuck_orders": [each.as_json() for each in self.stuck],
            "unreported_usage": [each.as_json() for each in self.unreported],
            "skipped": {each.mode: each.skipped.as_json() for each in self.modes},
            "passes": {each.mode: list(each.passes) for each in self.modes},
            "drift": {each.mode: _drift(each.drift) for each in self.modes},
            "modes": {each.mode: each.as_json() for each in self.modes},
        }


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it, at one moment."""

    looked: datetime
    state_dir: Path
    offerings: tuple[OfferingStatus, ...]
    broker: BrokerStatus
    # The last ones of the parts on this host.
    heartbeats: tuple[LastHeartbeat, ...] = ()
    # Why these are not known.
    heartbeats_problem: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "looked": stamp(self.looked),
            "state_dir": str(self.state_dir),
            "offerings": [each.as_json() for each in self.offerings],
            "broker": self.broker.as_json(),
            "heartbeats": [each.as_json() for each in self.heartbeats],
            "heartbeats_problem": self.heartbeats_problem or None,
        }


def of_site(
    settings: Settings, offerings: Iterable[Offering], broker: BrokerStatus = BrokerStatus()
) -> Picture:
    """Return the picture of these offerings. Reads this head node's files only. Raises StateError where the state file
    cannot be read.
    """
    now = datetime.now(UTC)
    with reading(settings.state_dir) as db:
        found = tuple(_of_offering(db, settings, offering, broker, now) for offering in offerings)
    try:
        beating, problem = tuple(heartbeat.last_heartbeats(settings.state_dir)), ""
    except StateError as error:
        beating, problem = (), str(error)
    return Picture(now, settings.state_dir, found, broker, beating, problem)


def waiting_plans(source: Source, offerings: Iterable[Offering]) -> list[WaitingPlan]:
    """Return the held plans of these offerings. Raises StateError."""
    return _plans_and_approvals(source, offerings)[0]


def _plans_and_approvals(
    source: Source, offerings: Iterable[Offering]
) -> tuple[list[WaitingPlan], list[UnplannedApproval]]:
    """Return the held plans with their approvals, and the other approvals of which something is not done. Raises
    StateError.
    """
    waiting: list[WaitingPlan] = []
    unplanned: list[UnplannedApproval] = []
    for held in held_plans.all_held(source, offerings):
        approvals = {approval.plan: approval for approval in held.approvals.open()}
        waiting += [WaitingPlan(held, plan, approvals.pop(plan.id, None)) for plan in held.planned()]
        unplanned += [UnplannedApproval(held.mode, each) for each in approvals.values() if each.open_keys]
    return waiting, unplanned


def unreported_text(found: UnreportedUsage) -> str:
    """Return the last usage of an ended resource that is not in Waldur."""
    return f"usage of {found.account} in {found.month} is not in Waldur: {found.figures} ({found.why})"


def _of_offering(
    db: Db, settings: Settings, offering: Offering, broker: BrokerStatus, now: datetime
) -> OfferingStatus:
    note = pauses.pause_note(db, offering)
    modes = tuple(
        _of_mode(db, settings, offering, mode, broker, now) for mode in Mode if offering.backend_of(mode)
    )
    orders = next((each for each in modes if each.mode is Mode.ORDER_PROCESS), None)
    held, approvals = _plans_and_approvals(db, (offering,))
    return OfferingStatus(
        offering,
        note or (offering.policy.paused_why if offering.policy.paused else ""),
        tuple(held),
        modes,
        _stuck(offering, orders, broker) if orders else (),
        tuple(unreported_usage.of_offering(db, offering.uuid)),
        tuple(passes.counts(db, offering.uuid)),
        tuple(approvals),
    )


def _of_mode(
    db: Db, settings: Settings, offering: Offering, mode: Mode, broker: BrokerStatus, now: datetime
) -> ModeStatus:
    periods = settings.periods
    ended = passes.last(db, offering.uuid, mode)
    whole = next((entry for entry in ended if not entry.get("subject")), {})
    last_pass = moment(whole.get("ended"))
    good = (entry.get("last_good") for entry in ended)
    minutes = periods.minutes_of(mode)
    if mode in broker.covered.get(offering.uuid, ()):
        # Its polls are skipped except for one in this time: events bring the rest.
        minutes = max(minutes, periods.reconciliation_minutes)
    period = timedelta(minutes=minutes)
    stopped = offering.stopped.get(mode, "")
    due = last_pass + period if last_pass and not stopped else None
    drift = DRIFTS.get(db, offering.uuid, mode)
    looked = moment(drift.looked) if drift else None
    skipped = SKIPPED.get(db, offering.uuid, mode) or Skipped()
    if looked and not skipped.count and any(_repaired(entry, looked) for entry in ended):
        drift = None
    return ModeStatus(
        mode=mode,
        period=period,
        passes=ended,
        skipped=skipped,
        drift=drift,
        last_pass=last_pass,
        last_good=next((found for text in good if (found := moment(text))), None),
        next_pass=due,
        lag=now - due if due and now - due > LATE_AFTER else None,
        waiting_since=broker.waiting_since.get((offering.uuid, mode)),
        stopped=stopped,
    )


def _repaired(entry: Mapping[str, Any], looked: datetime) -> bool:
    """Whether a pass has carried out everything that differed when it was looked at."""
    end = moment(entry.get("ended"))
    is_over_everything = entry.get("result") == "ok" and not entry.get("subject") and not entry.get("held")
    return is_over_everything and end is not None and end > looked


def _stuck(offering: Offering, mode: ModeStatus, broker: BrokerStatus) -> tuple[StuckOrder, ...]:
    """Return the orders that are not done by the last pass over each."""
    found: list[StuckOrder] = []
    seen: set[str] = set()
    for entry in mode.passes:
        subject, orders = str(entry.get("subject") or ""), entry.get("orders") or ()
        for order in orders if isinstance(orders, list) else ():
            uuid = str(order.get("order", ""))
            since = moment(order.get("since"))
            if uuid and uuid not in seen and since:
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
            seen.add(uuid)
        seen.add(subject)
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


def moment(text: Any) -> datetime | None:
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
