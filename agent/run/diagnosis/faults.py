# SPDX-License-Identifier: MIT
"""What is wrong with a site: the list of rules over its picture, each with its remedy. Pure.

`doctor` prints every finding, the page of `status` the faults, the metrics how many there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.config.model import Mode
from agent.core.checks import Check, CheckState, ok, problem, unknown, warning
from agent.core.errors import cause_of
from agent.core.periods import span
from agent.run.diagnosis import heartbeats
from agent.run.diagnosis.picture import BrokerStatus, ModeStatus, OfferingStatus, Picture, unreported_text
from agent.run.service.event_coverage import modes_by_events

HELD_PLANS = "held plans"
BROKER_REMEDY = (
    "start the broker (systemctl status redis; on one machine `waldur-site-cluster cluster` brings its own); check "
    "host, port, password and TLS of `broker_url`"
)

# Causes that ended passes, each with the mode and the offering in which it was met first.
Causes = dict[str, tuple[Mode, str]]


def of_site(found: Picture) -> Iterator[Check]:
    """Yield what is to be said of the broker and what runs behind it, of this host's parts, then of each offering."""
    yield from of_broker(found.broker)
    yield from of_parts(found)
    yield from of_offerings(found)


def of_parts(found: Picture) -> Iterator[Check]:
    """Yield the heartbeats of the parts on this host."""
    if found.heartbeats_problem:
        yield unknown("heartbeats", found.heartbeats_problem)
    yield from heartbeats.of_heartbeats(found.heartbeats)


def of_offerings(found: Picture) -> Iterator[Check]:
    known: Causes = {}
    for offering in found.offerings:
        yield from _of_offering(found, offering, known)


def is_fault(found: Check) -> bool:
    """Return whether a person should look at it."""
    return found.state in (CheckState.WARNING, CheckState.PROBLEM)


def of_broker(found: BrokerStatus) -> Iterator[Check]:
    if found.alone:
        yield ok("broker", found.problem)
        return
    if found.problem:
        yield problem("broker", found.problem, BROKER_REMEDY)
        return
    for queue in found.queues:
        if queue.workers is None:
            continue
        waiting = "an unknown number" if queue.waiting is None else queue.waiting
        if queue.workers:
            said = f"{queue.name} is served by {', '.join(queue.workers)}, {waiting} waiting"
            yield ok("workers", said)
        else:
            said = f"no worker serves the queue {queue.name} ({waiting} waiting)"
            by_hand = f"`celery -A tasks worker -Q {queue.name}`"
            yield problem(
                "workers", said, f"on its head node: `systemctl start waldur-site-worker`, or {by_hand}"
            )
    if found.beats is None:
        yield unknown("beat", "this broker keeps no heartbeats; see `passes` for whether passes run")
    elif not found.beats:
        said = "no beat has been heard of in the last minute, so no pass is started"
        yield problem("beat", said, "`systemctl start waldur-site-beat`, or `celery -A tasks beat`")
    else:
        yield ok("beat", f"runs as {', '.join(found.beats)}")


def _of_offering(found: Picture, of: OfferingStatus, known: Causes) -> Iterator[Check]:
    name, uuid = of.offering.name, of.offering.uuid
    if of.paused:
        yield warning("pause", f"paused {of.paused}", f"`pause {uuid} --off` ends the pause", name)
    for each in of.held:
        if each.approval is None:
            said = f"a plan is held for {span(found.looked - each.plan.since)}: {each.plan.reason}"
            yield warning(HELD_PLANS, said, f"`approve {each.plan.short_id}` releases it", name)
    for order in of.stuck:
        if order.result == "stuck":
            said = f"an order is stuck for {span(found.looked - order.since)}: {order.message}"
            remedy = "do what the line says; `status` shows the order and its next try"
            yield problem("stuck orders", said, remedy, name)
    for unreported in of.unreported:
        remedy = f"put it right in Waldur, then `forget unreported-usage --offering {uuid}`"
        yield problem("last usage", unreported_text(unreported), remedy, name)
    for mode in of.modes:
        yield from _of_mode(name, mode, known)
    if (
        not found.broker.problem and found.broker.beats is not None
    ):  # else it keeps no heartbeats of bridges either
        yield from _of_bridge(found.broker, of)


def _of_mode(name: str, found: ModeStatus, known: Causes) -> Iterator[Check]:
    mode, result = found.mode, found.whole.get("result")
    if found.stopped:
        yield warning(
            "passes",
            f"{mode} is off: {found.stopped}",
            "correct the configuration: `config-check` shows it",
            name,
        )
        return
    if not found.whole:
        yield ok("passes", f"{mode}: none has ended on this host yet", name)
    elif result != "ok":
        why = str(next(iter(found.whole.get("failures") or ()), "no reason is written down"))
        first_mode, first_offering = known.setdefault(cause_of(why), (mode, name))
        if (first_mode, first_offering) != (mode, name):
            why = f"as that of {first_mode}"
            why += f" of {first_offering}" if first_offering != name else ""
        said = f"{mode}: the last pass ended as `{result}`: {why}"
        yield problem(
            "passes", said, "do what the line says; `status` shows all lines and the next try", name
        )
    if found.lag is not None:
        said = f"{mode} is late: the next pass was due {span(found.lag)} ago"
        remedy = "start beat and a worker of the offering's queue, or look at their logs"
        yield problem("passes", said, remedy, name)
    elif result == "ok":
        yield ok("passes", f"{mode}: the last pass went well", name)


def _of_bridge(found: BrokerStatus, of: OfferingStatus) -> Iterator[Check]:
    wanted = sorted(modes_by_events(of.offering))
    covered = found.covered.get(of.offering.uuid, ())
    if missing := [mode for mode in wanted if mode not in covered]:
        said = f"no bridge listens to its events for {', '.join(missing)}: it is polled"
        remedy = "`systemctl start waldur-site-bridge`, or look at its log"
        yield warning("bridge", said, remedy, of.offering.name)
    elif wanted:
        yield ok("bridge", f"listens to its events for {', '.join(covered)}", of.offering.name)
