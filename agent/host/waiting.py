# SPDX-License-Identifier: MIT
"""Wait for something that is slow to come. A busy machine takes ten times as long, so no clock judges whether it has
failed: the end of the process that would bring it does, and ten minutes are for what hangs. For `cluster`, the demo
and the tests.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from datetime import datetime

from agent.core.errors import SiteAgentError
from agent.core.printable import ended_as

GIVE_UP_S = 600.0
PRINTED_EVERY_S = 20.0
PAUSE_S = 0.05


class NeverCame(SiteAgentError):
    """What was waited for did not come: its process has ended, or ten minutes are over."""


def wait_until(  # noqa: PLR0913  how one waits
    what: str,
    ready: Callable[[], bool],
    *,
    ended: Callable[[], str] = lambda: "",
    log: Callable[[], str] = lambda: "",
    say: Callable[[str], None] = lambda _: None,
    pause: Callable[[], object] = lambda: time.sleep(PAUSE_S),
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Call `ready` until it holds. Raises NeverCame with the end of `log`: at once when `ended` says how that which
    would bring it has ended, else ten minutes after `progress` changed last. `say` gets a line each 20 s: what is
    waited for, and since when.
    """
    since, started_s = f"{datetime.now().astimezone():%H:%M:%S}", time.monotonic()
    printed_s, reached = started_s, progress()
    while True:
        end = ended()  # before `ready`: what it did last counts
        if ready():
            return
        now_s = time.monotonic()
        if (now := progress()) != reached:
            reached, started_s = now, now_s
        if end or now_s - started_s > GIVE_UP_S:
            problem = f"{what} {end}" if end else f"{what}: waited for since {since} without success"
            raise NeverCame("; ".join(filter(None, [problem, log()])))
        if now_s - printed_s > PRINTED_EVERY_S:
            printed_s = now_s
            say(f"{what}: waited for since {since}")
        pause()


def end_of(process: subprocess.Popen[bytes]) -> str:
    """Return how a process has ended, in words; empty while it runs."""
    return "" if process.poll() is None else ended_as(process.returncode)
