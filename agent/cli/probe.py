# SPDX-License-Identifier: MIT
"""`waldur_site_healthz`: the probes of the reference's containers, liveness and readiness."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

from agent.cli import healthz
from agent.cli.output import echo
from agent.config import load
from agent.config.environment import HEARTBEAT_PATH
from agent.config.model import Offering
from agent.core.checks import CheckState
from agent.core.errors import SiteAgentError
from agent.run.site import client
from agent.waldur.me import whoami


def command(
    config_file: Path | None,
    max_age: float,
    readiness_timeout: float,
    heartbeat_path: str | None,
    liveness_only: bool,
) -> int:
    # As before, a file is looked at whatever the configuration says.
    file = heartbeat_path or os.environ.get(HEARTBEAT_PATH, "").strip()
    if file:
        found = [healthz.of_file(Path(file), max_age)]
    else:
        found = healthz.of_parts(load.require(config_file, os.environ).state_dir, (), max_age)
    problems = [healthz.line(each) for each in found if each.state is not CheckState.OK]
    if not problems and not liveness_only:
        offerings = load.require(config_file, os.environ).offerings
        if not _is_any_reached(offerings, readiness_timeout):
            problems = [f"Waldur answers for no offering within {readiness_timeout:g} s"]
    echo(*problems, err=True)
    if not problems:
        echo("healthy")
    return 1 if problems else 0


def _is_any_reached(offerings: tuple[Offering, ...], timeout_s: float) -> bool:
    """Return whether Waldur answers for one offering whose token it knows. What is slower than the time counts as away,
    and is not waited for.
    """
    reached: queue.Queue[bool] = queue.Queue()
    for offering in offerings:
        threading.Thread(target=lambda each=offering: reached.put(_is_reached(each)), daemon=True).start()
    until_s = time.monotonic() + timeout_s
    for _ in offerings:
        try:
            if reached.get(timeout=max(0.0, until_s - time.monotonic())):
                return True
        except queue.Empty:
            return False
    return False


def _is_reached(offering: Offering) -> bool:
    waldur = client(offering, "healthz")
    try:
        whoami(waldur)
    except SiteAgentError as error:
        echo(f"offering {offering.name}: {error}", err=True)
        return False
    finally:
        waldur.close()
    return True
