# SPDX-License-Identifier: MIT
"""What an operator has: a configuration, a cluster (emulated: it is fast), a Waldur (simulated), a command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rig import warm_python
from rig.processes import REPOSITORY
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur

PROGRAMS = Path(sys.executable).parent
UNKNOWN = "0" * 31 + "1"


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code and both streams."""

    code: int
    out: str
    err: str

    def document(self) -> Any:
        """The JSON on stdout, which is one line and nothing else."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)

    def log(self) -> list[dict[str, Any]]:
        """The log lines on stderr."""
        return [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]

    def sentences(self) -> list[str]:
        """What stderr says to people."""
        return [line for line in self.err.splitlines() if line and not line.startswith("{")]


@dataclass
class OperatorSite:
    """`environment` leads the emulator's commands, which are in `commands`, to a state of their own."""

    waldur: SimulatedWaldur
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    commands: Path = PROGRAMS

    def configure(self, *, backend: Mapping[str, Any] | None = None, **offering: Any) -> str:
        """Write the configuration of one offering; keys given replace the usual ones."""
        settings = {"slurm_bin_path": str(self.commands), "cluster_name": "demo", **(backend or {})}
        return str(configuration(self.waldur, self.folder, backend=settings, **offering))

    def configure_several(self, *offerings: Mapping[str, Any]) -> str:
        """As `configure`, with one offering for each map of keys that differ from the usual ones."""
        path = Path(self.configure())
        tree = yaml.safe_load(path.read_text())
        usual = tree["offerings"][0]
        tree["offerings"] = [{**usual, **offering} for offering in offerings]
        path.write_text(yaml.safe_dump(tree))
        return str(path)

    def place(self, name: str = "One", **limits: Any) -> str:
        return self.waldur.place_create_order(
            self.waldur.seed.project_uuids[0], name, limits=limits or {"cpu": 10}
        )

    def cluster(self) -> str:
        """Everything that the emulated cluster holds, as it keeps it; empty before the first change."""
        state = Path(self.environment["SLURM_EMULATOR_STATE_FILE"])
        return state.read_text() if state.exists() else ""

    def orders_and_resources(self) -> Any:
        """What Waldur holds, without what every read of an agent leaves behind (its heartbeat)."""
        state = self.waldur.site.state()
        return {name: state[name] for name in ("orders", "resources", "offerings", "offering_users")}


def run_program(
    *words: str, env: Mapping[str, str] | None = None, program: str = "manage.py", is_real: bool = False
) -> Ended:
    """A command as an operator starts it, in a process of its own: a fork of one that has imported it, or a real start,
    which some tests are about.
    """
    file = str(REPOSITORY / program if program == "manage.py" else PROGRAMS / program)
    if program == sys.executable:
        start = [sys.executable]
    elif is_real:
        start = [sys.executable, file] if program == "manage.py" else [file]
    else:
        start = [str(warm_python.of_commands().program), file]
    done = subprocess.run(
        [*start, *words],
        env={**os.environ, **(env or {})},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
    )
    return Ended(done.returncode, done.stdout, done.stderr)
