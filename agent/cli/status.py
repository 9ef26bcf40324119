# SPDX-License-Identifier: MIT
"""`status`: each offering's mode, pause, held plans, stuck orders and last passes, from this head node's files; then
queues, workers and beat, from the broker, or one line where it is away; and the heartbeats of the parts on this host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.cli import healthz
from agent.cli.approve import plan_lines
from agent.cli.moments import age, until
from agent.cli.options import number, print_json, read_settings, select_offerings
from agent.cli.output import echo
from agent.cli.pass_text import pass_text
from agent.config.model import Mode, Settings
from agent.core.errors import NO_ANSWER
from agent.run.diagnosis import faults, picture
from agent.run.diagnosis.picture import (
    BrokerStatus,
    ModeStatus,
    OfferingStatus,
    Picture,
    StuckOrder,
    unreported_text,
)

PASSES_SHOWN = 3
SKIPPED_SHOWN = 3


def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, page: Path | None, every_s: int | None
) -> int:
    if every_s is not None and page is None:
        raise click.UsageError("--every is for a page: add --html FILE.")
    settings = read_settings(config_file)
    offerings = select_offerings(settings, offering_uuid)
    if page is not None:
        # Imported here: it loads the backends, for the usage.
        from agent.cli import status_page

        status_page.keep(page, settings, offerings, lambda: _broker(settings), every_s)
        return 0
    found = picture.of_site(settings, offerings, _broker(settings))
    if as_json:
        print_json(found.as_json())
    else:
        echo(*lines(found))
    return 0


def _broker(settings: Settings) -> BrokerStatus:
    if needless := picture.without_broker(settings):
        return needless
    # Imported here: only who needs the broker pays for its libraries, a third of the time of `status`.
    from tasks.queue import inspection

    return inspection.look(settings)


def lines(found: Picture) -> list[str]:
    """Return the status as people read it in a terminal."""
    text: list[str] = []
    away: set[str] = set()
    for each in found.offerings:
        said = set(away)
        text += _offering_lines(each, said)
        # A server that is away is the same for all: it is named once.
        away |= {cause for cause in said if cause.startswith(NO_ANSWER)}
    here = (f"on this host: {healthz.line(each)}" for each in faults.of_parts(found))
    return [*text, *_broker_lines(found.broker), *here]


def _offering_lines(found: OfferingStatus, said: set[str]) -> Iterator[str]:
    """`said`: causes that are named already; those of this offering are added."""
    offering = found.offering
    yield f"{offering.name} ({offering.uuid})"
    yield f"  mode: {offering.policy.mode}"
    if found.paused:
        yield f"  paused {found.paused}; `pause {offering.uuid} --off` ends the pause"
    for plan in found.held:
        yield from plan_lines(plan, indent="  ")
    for order in found.stuck:
        yield from _stuck_lines(order)
    for unreported in found.unreported:
        yield f"  {unreported_text(unreported)}"
        yield f"    put it right in Waldur, then `forget unreported-usage --offering {offering.uuid}`"
    for mode in found.modes:
        yield from _mode_lines(mode, said)


def _stuck_lines(order: StuckOrder) -> Iterator[str]:
    about = f"{order.type}, account {order.account}" if order.account else order.type
    yield f"  order {order.uuid} ({about}): {order.result} for {age(order.since)}: {order.message}"
    if order.next_try is None:
        yield "    next try: none is planned (the mode is off)"
    else:
        yield f"    next try: {until(order.next_try)}, by {order.next_by}"


def _mode_lines(found: ModeStatus, said: set[str]) -> Iterator[str]:
    """Yield what is to be said of a mode. `said`: what its offering's other passes have said of themselves."""
    mode, ignored, ended, drift = found.mode, found.skipped, found.passes, found.drift
    if found.stopped:
        yield f"  {mode} is off: {found.stopped}"
    if ignored.count:
        yield f"  {mode}: {number(ignored.count, 'action')} skipped since {ignored.since}"
        yield from (f"    {line}" for line in ignored.lines[:SKIPPED_SHOWN])
        if (more := ignored.count - SKIPPED_SHOWN) > 0:
            yield f"    and {more} more"
    if not ended:
        yield f"  {mode}: no pass has ended on this head node yet"
    for entry in ended[:PASSES_SHOWN]:
        yield from _pass_lines(mode, entry, said)
    if ended and found.last_good is None:
        yield f"  {mode}: none of the passes that are remembered went well"
    elif found.last_good and found.last_good != found.last_pass:
        yield f"  {mode}: the last pass that went well ended {age(found.last_good)} ago"
    if found.waiting_since:
        yield f"  {mode}: a pass waits in the queue for {age(found.waiting_since)}"
    if found.lag is not None and found.next_pass is not None:
        due = f"the next pass was due {age(found.next_pass)} ago"
        yield f"  {mode}: late: {due}; do beat and a worker of its queue run?"
    if drift is not None and drift.differences:
        kinds = ", ".join(f"{count} {verb}" for verb, count in drift.kinds.items())
        yield f"  {mode}: drift since {drift.since}: {kinds} (looked at {drift.looked}; `drift` looks now)"


def _broker_lines(found: BrokerStatus) -> Iterator[str]:
    if found.problem:
        yield f"queues, workers and retries are not known: {found.problem}"
        return
    yield f"broker {found.url}"
    for queue in found.queues:
        served = f"served by {', '.join(queue.workers)}" if queue.workers else "NO WORKER SERVES IT"
        waiting = "an unknown number of tasks" if queue.waiting is None else number(queue.waiting, "task")
        yield f"  queue {queue.name}: {waiting} waiting, {served}"
    if found.unacknowledged:
        yield f"  {number(found.unacknowledged, 'task')} taken and not done yet"
    for worker in found.workers:
        yield f"  worker {worker.name}: {number(worker.processes, 'process')}"
    for task in found.running:
        since = f" for {age(task.since)}" if task.since else ""
        yield f"  at work: {task.name} {' '.join(task.arguments)} on {task.worker}{since}"
    for task in found.scheduled:
        due = f" {until(task.due)}" if task.due else ""
        yield f"  comes back{due}: {task.name} {' '.join(task.arguments)} on {task.worker}"
    if found.beats is None:
        yield "  beat: not known; this broker keeps no heartbeats"
    else:
        yield (
            f"  beat: {', '.join(found.beats)}" if found.beats else "  beat: NONE RUNS, so no pass is started"
        )
    for uuid, modes in found.covered.items():
        yield f"  bridge: listens for {', '.join(modes)} of offering {uuid}"


def _pass_lines(mode: Mode, entry: Mapping[str, Any], said: set[str]) -> list[str]:
    found = pass_text(entry, said)
    subject = f" of {found.subject}" if found.subject else ""
    did = f": {found.done}, {found.seconds}" if found.done else f", after {found.seconds}"
    ended = f"{age(found.ended)} ago" if found.ended else "some time ago"
    return [f"  {mode}{subject}: {found.result} {ended}{did}", *(f"    {each}" for each in found.more)]
