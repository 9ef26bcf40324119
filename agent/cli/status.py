# SPDX-License-Identifier: MIT
"""`status`: each offering's mode, pause, held plans, stuck orders and last passes, from this head node's files; then
queues, workers and beat, from the broker. Where it is away, one line says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.cli import status_page
from agent.cli.approve import plan_lines
from agent.cli.moments import age, until
from agent.cli.options import (
    config_option,
    json_option,
    load_settings,
    number,
    offering_option,
    print_json,
    select_offerings,
)
from agent.cli.output import echo
from agent.cli.pass_text import pass_text, untold_text
from agent.config.model import Mode
from agent.run import status
from agent.run.status import BrokerStatus, ModeStatus, OfferingStatus, SiteStatus, StuckOrder

PASSES_SHOWN = 3
LEFT_OUT_SHOWN = 3


@click.command()
@config_option
@offering_option
@json_option
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE",
              help="Write a page for a browser instead, with this month's usage against the limits.")  # fmt: skip
@click.option("--every", "every_s", type=click.IntRange(5, 3600), metavar="SECONDS",
              help="With --html: write it again every so often, until Ctrl-C; the browser keeps up.")  # fmt: skip
def command(
    config_file: Path | None, offering_uuid: str | None, as_json: bool, page: Path | None, every_s: int | None
) -> int:
    """Show each offering's mode, what waits for a person or for time and why, the last passes, queues and workers."""
    # Imported here: only who needs the broker pays for its libraries.
    from tasks import inspection

    if every_s is not None and page is None:
        raise click.UsageError("--every is for a page: add --html FILE.")
    settings = load_settings(config_file)
    offerings = select_offerings(settings, offering_uuid)
    if page is not None:
        status_page.keep(page, settings, offerings, lambda: inspection.look(settings), every_s)
        return 0
    found = status.of_site(settings, offerings, inspection.look(settings))
    if as_json:
        print_json(found.as_json())
    else:
        echo(*lines(found))
    return 0


def lines(found: SiteStatus) -> list[str]:
    """Return the status as people read it in a terminal."""
    text = [line for each in found.offerings for line in _offering_lines(each)]
    return [*text, *_broker_lines(found.broker)]


def _offering_lines(found: OfferingStatus) -> Iterator[str]:
    offering = found.offering
    yield f"{offering.name} ({offering.uuid})"
    yield f"  mode: {offering.policy.mode}"
    if found.paused:
        yield f"  paused {found.paused}; `pause {offering.uuid} --off` lets it go on"
    for plan in found.held:
        yield from plan_lines(plan, indent="  ")
    for order in found.stuck:
        yield from _stuck_lines(order)
    for untold in found.untold:
        yield f"  {untold_text(untold)}"
        yield f"    put it right in Waldur, then `forget untold-usage --offering {offering.uuid}`"
    said: set[str] = set()
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
    mode, ignored, ended, drift = found.mode, found.left_out, found.passes, found.drift
    if found.stopped:
        yield f"  {mode} is off: {found.stopped}"
    if ignored.count:
        yield f"  {mode}: {number(ignored.count, 'action')} left out since {ignored.since}"
        yield from (f"    {line}" for line in ignored.lines[:LEFT_OUT_SHOWN])
        if (more := ignored.count - LEFT_OUT_SHOWN) > 0:
            yield f"    and {more} more"
    if not ended:
        yield f"  {mode}: no pass has ended on this head node yet"
    for entry in ended[:PASSES_SHOWN]:
        try:
            yield from _pass_lines(mode, entry, said)
        except (AttributeError, KeyError, TypeError, ValueError):
            yield f"  {mode}: a pass ended, and what is written of it cannot be read"
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
        yield f"  queue {queue.name}: {number(queue.waiting, 'task')} waiting, {served}"
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
    return [f"  {mode}{subject}: {found.result} {found.ended}{did}", *(f"    {each}" for each in found.more)]
