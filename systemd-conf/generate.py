# SPDX-License-Identifier: MIT
"""Write the units under the names and places that waldur-site-agent and the services before it have.

Each is the unit of a worker (systemd/, systemd/legacy/, where the reasons stand) with another command: services of
`waldur_site_agent` in one process, without a broker. tests/deploy/test_old_units.py holds the files to this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SYSTEMD = FOLDER.parent / "systemd"
CONFIG = "/etc/waldur/waldur-site-agent-config.yaml"
OLDEST = "/etc/waldur-slurm-service"


@dataclass(frozen=True)
class OldUnit:
    """One unit in its two forms: for systemd of today and, in `legacy`, older than 247."""

    # Where its files are, in the names of the reference.
    file: str
    legacy: str
    # Each name by which a site may have installed it; the first names the log of the legacy form.
    names: tuple[str, ...]
    modes: tuple[str, ...]
    # Of the oldest service: variables configure it, and no YAML file.
    env_file: str = ""

    @property
    def command(self) -> str:
        modes = " ".join(f"-m {mode}" for mode in self.modes)
        return f"waldur_site_agent {modes}" + ("" if self.env_file else f" -c {CONFIG}")

    @property
    def environment(self) -> list[str]:
        if not self.env_file:
            return []
        tres = f"Environment=SLURM_TRES_CONFIG_PATH={OLDEST}/tres.yaml"
        return [tres, f"EnvironmentFile={self.env_file}"]


def _of_mode(mode: str, *more_names: str) -> OldUnit:
    dashed = mode.replace("_", "-")
    folder, name = f"agent-{dashed}", f"waldur-agent-{dashed}"
    names = (name, f"{name}-legacy", *more_names)
    return OldUnit(f"{folder}/agent.service", f"{folder}/agent-legacy.service", names, (mode,))


def _of_direction(direction: str, *modes: str) -> OldUnit:
    name = f"waldur-slurm-service-{direction}"
    files = f"service-{direction}/{name}"
    names = (name, f"{name}-legacy", f"waldur-site-agent-{direction}-legacy")
    return OldUnit(f"{files}.service", f"{files}-legacy.service", names, modes, f"{OLDEST}/{direction}.env")


UNITS = (
    _of_mode("order_process"),
    _of_mode("membership_sync"),
    _of_mode("report", "waldur-site-agent-report"),
    _of_mode("event_process"),
    _of_direction("pull", "order_process"),
    _of_direction("push", "report", "membership_sync"),
)


def text(unit: OldUnit, *, legacy: bool) -> str:
    """Return the unit: the worker's, with its own names, command and log."""
    worker = SYSTEMD / ("legacy" if legacy else "") / "waldur-site-worker.service"
    lines = [
        f"# {' and '.join(unit.modes)}, without a broker: docs/migrate.md. Made by systemd-conf/generate.py",
        f"# of systemd/{'legacy/' if legacy else ''}waldur-site-worker.service, which has the reasons.",
    ]
    for line in worker.read_text().splitlines():
        lines += [line] if line[:1] != "#" else []
    changed = {
        "Description": [f"Description=Waldur site agent: {' and '.join(unit.modes)}"],
        "Documentation": ["Documentation=file:///usr/share/doc/waldur-site-cluster/migrate.md"],
        "After": [],
        "PartOf": ["After=network-online.target munge.service slurmdbd.service"],
        "Environment=WALDUR_SITE_AGENT_CONFIG": [],
        "EnvironmentFile": ["EnvironmentFile=-/etc/waldur/site-cluster.env", *unit.environment],
        "ExecStart": [f"ExecStart={_command(unit, legacy=legacy)}"],
        "WantedBy": [
            "WantedBy=multi-user.target",
            f"Alias={' '.join(f'{name}.service' for name in unit.names)}",
        ],
    }
    return "".join(f"{line}\n" for line in _replaced(lines, changed))


def _command(unit: OldUnit, *, legacy: bool) -> str:
    if not legacy:
        return f"/usr/bin/env {unit.command}"
    # Where the reference's legacy units have their log; readable for root's group only.
    name = unit.names[0].replace("waldur-agent-", "waldur-site-agent-")
    log = f"/var/log/{name}.log"
    return f"/bin/sh -c '(umask 027; : >>{log}); exec /usr/bin/env {unit.command} >>{log} 2>&1'"


def _replaced(lines: list[str], changed: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the lines, with others in place of those that begin with a key."""
    for line in lines:
        key = next((key for key in changed if line.startswith(f"{key}=")), None)
        yield from [line] if key is None else changed[key]


def files() -> dict[Path, str]:
    """Return each file with its content."""
    return {
        **{FOLDER / unit.file: text(unit, legacy=False) for unit in UNITS},
        **{FOLDER / unit.legacy: text(unit, legacy=True) for unit in UNITS},
    }


if __name__ == "__main__":
    for path, content in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
