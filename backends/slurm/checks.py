# SPDX-License-Identifier: MIT
"""Checks beyond `health`: what the agent's user may do in SLURM's accounting, and what time slurmctld has.

Facts: `sacctmgr show user format=adminlevel`; SlurmUser and root need no level (sacctmgr(1), 22.05). `sdiag` prints
the time of slurmctld; `sacctmgr show stats` that of its own host, so slurmdbd's clock cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from agent.core.checks import Check, ok, problem, unknown
from agent.core.errors import BackendError, BackendUnavailable
from backends.process import Runner
from backends.slurm.programs import Programs, output

PRIVILEGES, CLOCK = "SLURM privileges", "clock of slurmctld"
LEVELS = {"operator": 1, "administrator": 2}
SLURM_USER = re.compile(r"^SlurmUser(?:Id)?\s*=\s*(\S+?)\(\d+\)", re.MULTILINE)
SDIAG_TIME = re.compile(r"^sdiag output at .*\((\d{1,12})\)", re.MULTILINE)


def checks(runner: Runner, programs: Programs) -> Mapping[str, Callable[[], Check | datetime]]:
    return {
        PRIVILEGES: lambda: privileges(runner, programs),
        CLOCK: lambda: controller_time(runner, programs),
    }


def privileges(runner: Runner, programs: Programs) -> Check:
    """Check that the user who runs sacctmgr may write. Raises BackendError."""
    user = output(runner.read(("id", "-un"))).strip()
    rows = output(
        runner.read((*programs.sacctmgr_read, "show", "user", f"name={user}", "format=user,adminlevel"))
    )
    level = next((line.partition("|")[2].strip() for line in rows.splitlines() if line), "")
    if level.lower() in LEVELS:
        return ok(PRIVILEGES, f"{user} is {level}")
    if user == "root":
        return ok(PRIVILEGES, "root may do everything")
    slurm_user = SLURM_USER.search(output(runner.read((programs.sacctmgr, "show", "config"))))
    if slurm_user and slurm_user[1] == user:
        return ok(PRIVILEGES, f"{user} is SlurmUser and may do everything")
    return problem(
        PRIVILEGES,
        f"{user} has AdminLevel {level or 'None'}: sacctmgr refuses its writes",
        f"sacctmgr add user {user} account=root adminlevel=Administrator (or `modify user {user} set adminlevel=...`); "
        "or run the worker as root or SlurmUser",
    )


def controller_time(runner: Runner, programs: Programs) -> Check | datetime:
    """Return what the clock of slurmctld shows. Raises BackendError."""
    try:
        said = output(runner.read((programs.sdiag,)))
    except BackendUnavailable as error:
        waits = "until then no member is removed and nothing ends; the rest goes on"
        return problem(CLOCK, str(error), f"systemctl status slurmctld on its host; {waits}")
    except BackendError as error:
        return unknown(CLOCK, f"sdiag does not report it: {error}")
    found = SDIAG_TIME.search(said)
    if found is None:
        return unknown(CLOCK, "sdiag does not report it")
    return datetime.fromtimestamp(int(found[1]), UTC)
