# SPDX-License-Identifier: MIT
"""`healthz`: do the parts of the agent on this host write heartbeats? Asks neither Waldur nor the broker."""

from __future__ import annotations

import os
import time
from pathlib import Path

from agent.cli.options import print_json
from agent.cli.output import echo
from agent.config import load
from agent.config.environment import HEARTBEAT_PATH
from agent.core.checks import Check, CheckState, ok, problem
from agent.core.errors import ConfigError, SiteAgentError
from agent.host import heartbeat
from agent.host.heartbeat import Part
from agent.run.diagnosis import heartbeats, probes


def command(
    parts: tuple[str, ...], config_file: Path | None, max_age: float, path: str | None, as_json: bool
) -> int:
    own_file = path or os.environ.get(HEARTBEAT_PATH, "").strip()
    if own_file and not parts:
        found = [of_file(Path(own_file), max_age)]
    else:
        try:
            settings = load.require(config_file, os.environ, with_logins=False)
        except ConfigError as error:
            echo(*str(error).split("\n"), err=True)
            return 1
        found = of_parts(settings.state_dir, tuple(map(Part, parts)), max_age)
    is_failed = probes.failed(found)
    if as_json:
        print_json({"ok": not is_failed, "parts": [each.as_json() for each in found]})
    else:
        for each in found:
            echo(line(each), err=each.state is not CheckState.OK)
    return int(is_failed)


def line(found: Check) -> str:
    return f"{found.name}: {'; '.join(filter(None, (found.found, found.remedy)))}"


def of_parts(state_dir: Path, parts: tuple[Part, ...], max_age_s: float) -> list[Check]:
    """Return the health of these parts of this host; without any named, of all that have been seen here."""
    try:
        known = heartbeat.last_heartbeats(state_dir)
    except SiteAgentError as error:
        return [problem("healthz", str(error), "")]
    here = [each for each in known if not parts or each.part in parts]
    found = [*heartbeats.of_heartbeats(here, max_age_s)]
    here = [each for each in here if not each.problem]
    folder = state_dir / heartbeat.FOLDER
    if not parts and not here:
        said = f"no part has written a heartbeat on this host in {folder}"
        found.append(problem("agent", said, "start one, or name the configuration that it was started with"))
    for part in parts:
        if part not in {each.part for each in here}:
            said = f"no heartbeat on this host in {folder}: it does not run, or with another state_dir"
            found.append(problem(part, said, ""))
    return found


def of_file(path: Path, max_age_s: float) -> Check:
    """Return the health of whoever touches a file."""
    try:
        age_s = max(0.0, time.time() - path.stat().st_mtime)
    except OSError as error:
        return problem(str(path), f"no heartbeat: {error.strerror}", "")
    if age_s > max_age_s:
        return problem(str(path), f"the last heartbeat is {age_s:.0f} s old", "")
    return ok(str(path), f"ok, {age_s:.0f} s ago")
