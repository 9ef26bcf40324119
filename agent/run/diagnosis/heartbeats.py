# SPDX-License-Identifier: MIT
"""What the heartbeats of this host's parts say. Apart from `faults`, since probes start `healthz` again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.core.checks import Check, ok, problem, unknown
from agent.host.heartbeat import MAX_AGE_S, LastHeartbeat


def of_heartbeats(heartbeats: Iterable[LastHeartbeat], max_age_s: float = MAX_AGE_S) -> Iterator[Check]:
    """Yield how long ago each part on this host wrote its last heartbeat; older ones than `max_age_s` are faults."""
    for last in heartbeats:
        name = f"heartbeat of {last.part}" + (f" {last.name}" if last.name not in ("", last.part) else "")
        if last.age_s is None:
            yield unknown(name, last.problem)
        elif last.age_s <= max_age_s:
            yield ok(name, f"ok, {last.age_s:.0f} s ago")
        else:
            said = (
                f"the last one is {last.age_s:.0f} s old (process {last.pid}): the part hangs, was killed, or"
            )
            remedy = f"look at its log. Where it is gone permanently, delete {last.path}"
            yield problem(name, f"{said} waits for its broker", remedy)
