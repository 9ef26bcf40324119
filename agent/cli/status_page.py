# SPDX-License-Identifier: MIT
"""Status as one page for a browser: first what needs a person, then each offering, then queues and workers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.cli import pages
from agent.cli.moments import age, until
from agent.cli.options import number
from agent.cli.output import echo
from agent.cli.pass_text import PassText, pass_text, untold_text
from agent.cli.usage import sections
from agent.config.model import Mode, Offering, Settings
from agent.core.errors import SiteAgentError
from agent.run import status
from agent.run.site import connect
from agent.run.status import BrokerStatus, ModeStatus, OfferingStatus, SiteStatus, StuckOrder, WaitingPlan
from agent.run.usage import view as usage_view
from agent.run.usage.view import UsageView

PROGRAM = "waldur-site-cluster"
LINES_SHOWN = 20
PASSES_SHOWN = 5
USAGE_EVERY_S = 600.0

Usages = Mapping[str, UsageView | SiteAgentError]


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a person should look at. `command`: what releases or shows it; `anchor`: where more is."""

    about: str
    text: str
    command: str = ""
    anchor: str = ""


def keep(
    path: Path,
    settings: Settings,
    offerings: Sequence[Offering],
    look: Callable[[], BrokerStatus],
    every_s: int | None = None,
) -> None:
    """Write the page once, or with `every_s` again and again until Ctrl-C. Raises StateError and PageNotWritten."""
    read_s = float("-inf")
    usages: Usages = {}
    try:
        while True:
            if time.monotonic() - read_s >= USAGE_EVERY_S:
                read_s, usages = time.monotonic(), _usages(settings, offerings)
            found = status.of_site(settings, offerings, look())
            pages.write(path, render(found, usages, refresh_s=every_s or 0))
            if every_s is None:
                echo(f"written to {path}", err=True)
                return
            time.sleep(every_s)
    except KeyboardInterrupt:
        echo(f"{path} is not written any more", err=True)


def _usages(settings: Settings, offerings: Sequence[Offering]) -> Usages:
    """Read this month's usage of the offerings that report it: one command of the cluster each."""
    found: dict[str, UsageView | SiteAgentError] = {}
    for offering in offerings:
        if offering.backend_of(Mode.REPORT):
            try:
                found[offering.uuid] = usage_view.view(connect(settings, offering, Mode.REPORT), 1)
            except SiteAgentError as error:
                found[offering.uuid] = error
    return found


def render(found: SiteStatus, usages: Usages, *, refresh_s: int = 0) -> str:
    """Return the page as HTML. `usages`: by the uuid of an offering, this month's, or why it could not be read."""
    return pages.render(
        "status",
        refresh_s=refresh_s,
        host=socket.gethostname(),
        looked=f"{found.looked.astimezone():%d %B %Y, %H:%M:%S %Z}",
        state_dir=str(found.state_dir),
        needs=list(needs(found)),
        offerings=[_offering(each, usages.get(each.offering.uuid)) for each in found.offerings],
        broker=_broker(found.broker),
    )


def needs(found: SiteStatus) -> Iterator[Need]:
    """Yield what waits for a person, or does not work: nothing of it where all is well."""
    broker = found.broker
    if broker.problem and not broker.alone:
        yield Need("Broker", broker.problem, f"{PROGRAM} doctor")
    elif broker.beats == ():
        yield Need("Beat", "none runs, so no pass is started", "systemctl start waldur-site-beat")
    for queue in broker.queues:
        if not queue.workers and not broker.problem:
            text = f"no worker serves the queue {queue.name}: {number(queue.waiting, 'task')} waiting"
            yield Need("Workers", text, "systemctl start waldur-site-worker")
    for offering in found.offerings:
        yield from _needs_of(offering)


def _needs_of(found: OfferingStatus) -> Iterator[Need]:
    name, uuid = found.offering.name, found.offering.uuid
    anchor = f"o-{uuid}"
    if found.paused:
        yield Need(name, f"paused {found.paused}", f"{PROGRAM} pause {uuid} --off", anchor)
    for each in found.held:
        if each.approval is None:
            text = f"a plan is held for {age(each.plan.since)}: {each.plan.reason}"
            yield Need(name, text, f"{PROGRAM} approve {each.plan.short_id}", f"plan-{each.plan.short_id}")
    for order in found.stuck:
        if order.result == "stuck":
            yield Need(name, f"an order is stuck for {age(order.since)}: {order.message}", anchor=anchor)
    for untold in found.untold:
        yield Need(name, untold_text(untold), f"{PROGRAM} forget untold-usage --offering {uuid}", anchor)
    for mode in found.modes:
        if mode.stopped:
            yield Need(name, f"{mode.mode} is off: {mode.stopped}", f"{PROGRAM} config-check", anchor)
        elif mode.lag is not None and mode.next_pass is not None:
            text = f"{mode.mode} is late: the next pass was due {age(mode.next_pass)} ago"
            yield Need(name, text, f"{PROGRAM} doctor", anchor)
        elif mode.last_pass and mode.last_good != mode.last_pass:
            since = f"since {age(mode.last_good)}" if mode.last_good else "as far as is remembered"
            yield Need(name, f"no pass of {mode.mode} went well {since}", anchor=anchor)


def _offering(found: OfferingStatus, usage: UsageView | SiteAgentError | None) -> dict[str, Any]:
    offering = found.offering
    said: set[str] = set()
    return {
        "name": offering.name,
        "uuid": offering.uuid,
        "anchor": f"o-{offering.uuid}",
        "mode": offering.policy.mode,
        "paused": found.paused,
        "held": [_held(each) for each in found.held],
        "stuck": [_stuck(each) for each in found.stuck],
        "modes": [_mode(each, said) for each in found.modes],
        "usage": sections.offering(usage) if isinstance(usage, UsageView) else None,
        "usage_problem": str(usage) if isinstance(usage, SiteAgentError) else "",
    }


def _held(each: WaitingPlan) -> dict[str, Any]:
    plan, approval = each.plan, each.approval
    return {
        "id": plan.short_id,
        "mode": each.held.mode,
        "scope": plan.scope,
        "reason": plan.reason,
        "since": age(plan.since),
        "count": number(len(plan.lines), "action"),
        "lines": list(plan.lines.values())[:LINES_SHOWN],
        "more": max(0, len(plan.lines) - LINES_SHOWN),
        "approved": f"approved by {approval.by}, {until(approval.expires)} it ends" if approval else "",
        "command": f"{PROGRAM} approve {plan.short_id}",
    }


def _stuck(order: StuckOrder) -> dict[str, str]:
    return {
        "uuid": order.uuid,
        "type": order.type,
        "account": order.account,
        "result": order.result,
        "message": order.message,
        "since": age(order.since),
        "next": f"{until(order.next_try)}, by {order.next_by}" if order.next_try else "none is planned",
    }


def _mode(found: ModeStatus, said: set[str]) -> dict[str, Any]:
    """`said`: what the offering's other passes have said of themselves."""
    drift = found.drift
    return {
        "name": str(found.mode),
        "stopped": found.stopped,
        "passes": [_pass(entry, said) for entry in found.passes[:PASSES_SHOWN]],
        "next": until(found.next_pass) if found.next_pass else "",
        "good": f"{age(found.last_good)} ago" if found.last_good else "",
        "is_late": found.lag is not None,
        "drift": ", ".join(f"{count} {verb}" for verb, count in drift.kinds.items()) if drift else "",
        "drift_since": drift.since if drift else "",
        "left_out": number(found.left_out.count, "action") if found.left_out.count else "",
        "left_out_lines": found.left_out.lines[:LINES_SHOWN],
    }


def _pass(entry: Mapping[str, Any], said: set[str]) -> PassText:
    try:
        return pass_text(entry, said)
    except (AttributeError, KeyError, TypeError, ValueError):
        return PassText("some time ago", "", "what is written of it cannot be read", "", ())


def _broker(found: BrokerStatus) -> dict[str, Any]:
    return {
        "url": found.url,
        "problem": found.problem,
        "queues": found.queues,
        "workers": found.workers,
        "running": [(each, f"{age(each.since)}" if each.since else "") for each in found.running],
        "scheduled": [(each, until(each.due) if each.due else "") for each in found.scheduled],
        "unacknowledged": found.unacknowledged,
        "beats": found.beats,
        "bridges": sorted(found.covered.items()),
    }
