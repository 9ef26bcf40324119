# SPDX-License-Identifier: MIT
"""Runs one backend of waldur-site-agent. The Python of the backend's own virtual environment starts this file, which
imports nothing of ours: `python -I host.py IDLE_S`, Python 3.8 or newer.

A question is a line of JSON on stdin (`{"call": "usage", "timeout_s": 120, "account": "a_1"}`), its answer a line on
stdout (`{"value": ...}` or `{"error": "ValueError: ..."}`). What the backend prints goes to stderr. It ends, with all
that the backend has started in its session, when stdin ends, an answer takes longer than `timeout_s`, or nothing was
asked for IDLE_S seconds.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Callable

GROUP = "waldur_site_agent.backends"
BASE = "waldur_site_agent.backend.backends"
ERROR_AT_MOST = 2000


def end() -> None:
    """End this process and those of its group, if it leads one."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def own_streams() -> tuple[BinaryIO, int]:
    """Return where questions come from and answers go to. Nothing else can read or write there, a fork neither."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.register_at_fork(after_in_child=lambda: os.dup2(nothing, answers) and None)
    return questions, answers


class Host:
    """The backend, with the questions that it can be asked."""

    def __init__(self) -> None:
        self._backend: Any = None

    def open(self, name: str, settings: dict[str, Any], components: dict[str, Any], zone: str) -> Any:
        """Make the backend as the reference's processor does."""
        points: Any = entry_points()
        group = points.select(group=GROUP) if hasattr(points, "select") else points.get(GROUP, ())
        found = {point.name: point for point in group}
        if name not in found:
            raise LookupError(
                f"no package here has a backend {name!r}; there are: {', '.join(sorted(found))}"
            )
        kind = found[name].load()
        self._backend = kind(settings, components)
        self._backend.timezone = zone
        may_fall = getattr(self._backend, "supports_decreasing_usage", False) is True
        return {"may_fall": may_fall, "python": ".".join(map(str, sys.version_info[:3]))}

    def usage(self, account: str, offering: str = "", year: int = 0, month: int = 0) -> Any:
        """Return what one account has used: of the present month, or of another; None where that is not named.
        `offering`: its `backend_id`, which a plugin finds at the resource, and by which it may count one cluster alone.
        """
        resource = SimpleNamespace(backend_id=account, name=account, offering_backend_id=offering)
        if year:
            found = self._backend.get_usage_report_for_period(
                [account], year, month, waldur_resource=resource
            )
        elif is_own(type(self._backend), "pull_resource"):
            info = self._backend.pull_resource(resource)
            return None if info is None else info.usage
        else:
            found = self._backend._get_usage_report([account])
        if not isinstance(found, dict):
            raise TypeError(f"a report is a dict, and this one is of the type {type(found).__name__}")
        return found.get(account)

    def check(self) -> Any:
        return {"ping": bool(self._backend.ping()), "components": list(self._backend.list_components())}

    def diagnostics(self) -> Any:
        return bool(self._backend.diagnostics())


def is_own(kind: type, method: str) -> bool:
    """Return whether a class has this method from another place than the base of the reference."""
    place = next((each for each in kind.__mro__ if method in vars(each)), None)
    return place is not None and place.__module__ != BASE


def number(value: Any) -> float:
    """Return a Decimal, or a number of another library, as JSON can have it."""
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(f"a report cannot have a value of the type {type(value).__name__}")


def answer(calls: dict[str, Callable[..., Any]], question: bytes) -> bytes:
    asked = json.loads(question)
    # Who has asked ends it in time; this is for the case that nobody waits any more, and stdin has not ended.
    late = threading.Timer(asked.pop("timeout_s"), end)
    late.daemon = True
    late.start()
    try:
        text = json.dumps({"value": calls[asked.pop("call")](**asked)}, default=number)
    except BaseException as error:  # noqa: BLE001  others wrote the backend, and it may raise anything
        traceback.print_exc()
        text = json.dumps({"error": f"{type(error).__name__}: {error}"[:ERROR_AT_MOST]})
    finally:
        late.cancel()
    return text.encode() + b"\n"


def main() -> None:
    idle_s = float(sys.argv[1])
    questions, answers = own_streams()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    asked: queue.Queue[bytes] = queue.Queue()

    def listen() -> None:
        for question in questions:
            asked.put(question)
        end()

    threading.Thread(target=listen, daemon=True).start()
    host, me = Host(), os.getpid()
    calls = {call.__name__: call for call in (host.open, host.usage, host.check, host.diagnostics)}
    while True:
        try:
            question = asked.get(timeout=idle_s)
        except queue.Empty:
            end()
        said = answer(calls, question)
        if os.getpid() != me:
            os._exit(0)  # a fork that came back from the backend
        while said:
            said = said[os.write(answers, said) :]


if __name__ == "__main__":
    main()
