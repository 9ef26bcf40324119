# SPDX-License-Identifier: MIT
"""Status as one page for a browser: first what needs a person, then each offering, then queues and workers."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.cli import pages
from agent.cli.output import echo
from agent.cli.pass_text import OK, REPEATED, PassText, pass_text
from agent.cli.usage import sections
from agent.config.model import Mode, Offering, Settings
from agent.core.checks import Check
from agent.core.errors import SiteAgentError, cause_of
from agent.run.diagnosis import faults, picture
from agent.run.diagnosis.picture import BrokerStatus, ModeStatus, OfferingStatus, Picture, StuckOrder
from agent.run.site import connect
from agent.run.usage import view as usage_view
from agent.run.usage.view import UsageView

LINES_SHOWN = 20
NEEDS_SHOWN = 50
PASSES_SHOWN = 5
USAGE_EVERY_S = 600.0

Usages = Mapping[str, UsageView | SiteAgentError]


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
            found = picture.of_site(settings, offerings, look())
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


def render(found: Picture, usages: Usages, *, refresh_s: int = 0) -> str:
    """Return the page as HTML. `usages`: by the uuid of an offering, this month's, or why it could not be read."""
    return pages.render("status", refresh_s=refresh_s, **content(found, usages))


def content(found: Picture, usages: Usages) -> dict[str, Any]:
    """Return what the template of the page needs."""
    return {
        "host": socket.gethostname(),
        "looked": f"{found.looked.astimezone():%d %B %Y, %H:%M:%S %Z}",
        "found": found,
        "needs": [need for need in needs(found) if need.name != faults.HELD_PLANS],
        "held": [each for of in found.offerings for each in of.held if each.approval is None],
        "anchors": {each.offering.name: each.offering.uuid for each in found.offerings},
        "orders": {each.offering.uuid: _orders(each) for each in found.offerings},
        "passes": {each.offering.uuid: _passes(each) for each in found.offerings},
        "usages": {
            uuid: sections.offering(each) for uuid, each in usages.items() if isinstance(each, UsageView)
        },
        "problems": {uuid: str(each) for uuid, each in usages.items() if isinstance(each, SiteAgentError)},
        "lines_shown": LINES_SHOWN,
        "needs_shown": NEEDS_SHOWN,
    }


def needs(found: Picture) -> list[Check]:
    """Return what waits for a person, or does not work: nothing where all is well."""
    return list(filter(faults.is_fault, faults.of_site(found)))


def _orders(found: OfferingStatus) -> list[tuple[StuckOrder, str, str]]:
    """Return the orders that are not finished, each with the reason and the plan that it waits for. What the list of
    needs or another order has said is not said again.
    """
    said = _said_by_needs(found)
    orders = []
    for order in found.stuck:
        cause = cause_of(order.message)
        each = found.plan_of(order)
        plan = each.plan.short_id if each else ""
        orders.append((order, REPEATED if cause in said else order.message, plan))
        said.add(cause)
    return orders


def _passes(found: OfferingStatus) -> list[tuple[ModeStatus, list[PassText]]]:
    """Return the modes of an offering with their last passes; what has been said of one is not said again."""
    said = _said_by_needs(found)
    return [(mode, [pass_text(entry, said) for entry in mode.passes[:PASSES_SHOWN]]) for mode in found.modes]


def _said_by_needs(found: OfferingStatus) -> set[str]:
    """Return the causes that the list of needs names of an offering."""
    stuck = [order.message for order in found.stuck if order.result == "stuck"]
    failures = [each.whole.get("failures") or () for each in found.modes if each.whole.get("result") != OK]
    return {cause_of(str(line)) for line in (*stuck, *(each[0] for each in failures if each))}
