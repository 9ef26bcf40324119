# SPDX-License-Identifier: MIT
"""`demo`: the whole system on embedded parts, with a live view of the orders on their way."""

from __future__ import annotations

import secrets
import shutil
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text
from rich.tree import Tree

from agent.cli import console as consoles
from agent.cli.options import print_json
from agent.cli.web import passwords
from agent.cli.web.passwords import new_login
from agent.cli.web.roles import Role
from agent.core.errors import SiteAgentError
from agent.core.model import Snapshot
from agent.host.children import Stopped, StopRequest
from simulator.demo import scenario
from simulator.demo.clusters import CLUSTERS, DemoCluster
from simulator.demo.day import Day
from simulator.demo.scenario import Demo

STOPPED = 130
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STYLES = {"done": "green", "erred": "red", "executing": "yellow"}


def command(once: bool, as_json: bool, keep: bool, backend: str) -> int:
    stop_request = StopRequest()
    for stop in STOP_SIGNALS:
        signal.signal(stop, stop_request.make)
    console = consoles.console(stderr=as_json)
    folder = Path(tempfile.mkdtemp(prefix="waldur-demo-"))
    # Also where nobody reads any more what is printed.
    code = STOPPED
    try:
        code = _demo(folder, console, CLUSTERS[backend], stop_request, once=once, as_json=as_json)
    except Stopped:
        _print(console, "stopped before the end")
    except SiteAgentError as error:
        code = 1
        if as_json:
            print_json({"ok": False, "faults": [str(error)], "orders": {}, "seconds_per_order": {}})
        raise
    finally:
        if keep or (code == 1 and any(folder.iterdir())):
            _print(console, f"configuration and logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def _demo(
    folder: Path, console: Console, kind: DemoCluster, stop_request: StopRequest, *, once: bool, as_json: bool
) -> int:
    kind.require()
    started_s = time.monotonic()
    is_complete = True
    password = secrets.token_urlsafe(9)
    passwords.write(folder / "state" / passwords.NAME, {"demo": new_login("demo", Role.OPERATOR, password)})
    with scenario.running(folder, kind, stop_request, partial(_print, console)) as demo:
        demo.place_orders()
        _watch(demo, console)
        demo.measure_event()
        summary = demo.summary()
        if not as_json:
            _print_result(demo, console, time.monotonic() - started_s)
        day = Day(demo)
        if summary["ok"]:
            summary["faults"] += _play(day, console, once=once)
            summary["ok"] = not summary["faults"]
        summary["seconds_per_scene"] = day.seconds
        for fault in summary["faults"]:
            _print(console, fault, style="red")
        if not once:
            _print_addresses(demo, day, console, password)
            is_complete = _wait_for_end(demo, console)
    if as_json:
        print_json(summary)
    return 0 if summary["ok"] and is_complete else 1


def _watch(demo: Demo, console: Console) -> None:
    try:
        with Live(console=console, refresh_per_second=8) as live:

            def is_finished() -> bool:
                finished = demo.finished()
                live.update(_table(demo))
                return finished

            demo.children.wait_for_work("the end of the orders", is_finished, 0.1)
    finally:
        if not console.is_terminal:
            console.line()


def _table(demo: Demo) -> Table:
    # Folded: a name that is cut off cannot be looked for.
    names = (Column(name, overflow="fold") for name in ("order", "state in Waldur", "account", "seconds"))
    table = Table(*names, title="Orders", title_justify="left")
    for name, state, account, seconds in demo.rows():
        table.add_row(name, f"[{STYLES.get(state, 'cyan')}]{state}[/]", account, seconds)
    return table


def _print_result(demo: Demo, console: Console, seconds: float) -> None:
    """Print what became of the orders."""
    console.print(_tree(demo.cluster()))
    _print(
        console,
        f"{len(demo.ended)} orders went from Waldur through the bridge, {demo.broker} and the worker to "
        f"{demo.kind.tool}, {seconds:.0f} s after the start.",
    )
    _print(
        console,
        f"One more order, placed while nothing else happened: its event brought it from Waldur to {demo.kind.tool} and "
        f"back in {demo.event_latency_s:.1f} s.",
    )


def _play(day: Day, console: Console, *, once: bool) -> list[str]:
    """Play the day, write its pages, and return what is wrong, a sentence each. Where it ends by itself, the plan is
    approved in the end.
    """
    try:
        for scene in day.scenes():
            _print(console, day.play(scene))
        faults = day.faults()
        day.write_pages(runs_on=not once)
        if once:
            _print(console, day.approve())
    except SiteAgentError as error:
        return [str(error)]
    return faults


def _print_addresses(demo: Demo, day: Day, console: Console, password: str) -> None:
    """Print where everything is that goes on running, and what to try on it."""
    for sentence in (
        f"console: {demo.console_url} (user demo, password {password})",
        f"Flower: {demo.flower_url} (user demo, password {demo.flower_password})",
        f"Waldur: {demo.waldur.root_url}/",
        f"configuration and logs: {demo.folder}",
        *(f"{title}: {path.as_uri()}" for title, path in day.pages.items()),
        f"In another shell, paste `. {demo.activation}`, and try:",
        *(f"  waldur-site-cluster {words}" for words in day.commands()),
        "This places another order, whose event brings it to the worker at once:",
        f"  {demo.order_line()}",
    ):
        _print(console, sentence)


def _print(console: Console, sentence: str, *, style: str = "") -> None:
    """Print a sentence as it is: without markup and without line breaks."""
    console.print(Text(sentence, style=style), soft_wrap=True)


def _tree(snapshot: Snapshot) -> Tree:
    root = Tree("cluster demo: root")
    branches = {"root": root}
    pending = [account for account in snapshot.accounts.values() if account.parent]
    while pending:
        ready = [account for account in pending if account.parent in branches]
        for account in ready:
            limits = " ".join(f"{tres}={value}" for tres, value in sorted(account.limits.items()))
            members = ", ".join(sorted(snapshot.users_of(account.name)))
            text = f"[bold]{account.name}[/bold] {limits}" + (f"  members: {members}" if members else "")
            branches[account.name] = branches[account.parent or "root"].add(text)
        pending = [account for account in pending if account.name not in branches]
    return root


def _wait_for_end(demo: Demo, console: Console) -> bool:
    """Wait for Ctrl-C and return True; False when a part ends before."""
    _print(console, "Everything keeps running. Ctrl-C stops it all.")
    try:
        while not demo.children.dead():
            demo.stop_request.pause(0.5)
    except Stopped:
        _print(console, "stopping")
        return True
    _print(console, ", ".join(demo.children.dead()), style="red")
    return False
