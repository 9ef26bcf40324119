# SPDX-License-Identifier: MIT
"""The systemd units: those of `systemd/`, and made of them the units under the names that waldur-site-agent and the
services before it have: services of `waldur_site_agent` in one process, without a broker.

Each old unit is the unit of a worker (systemd/, systemd/legacy/, where the reasons stand) with another command.
The files in `systemd-conf/` are these, at the places of the reference; `python -m agent.host.unit_files` writes them
there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.core.errors import ConfigError
from agent.host import shipped

CONFIG = "/etc/waldur/waldur-site-agent-config.yaml"
OLDEST = "/etc/waldur-slurm-service"
# The environment that the units of `systemd/` name.
ENVIRONMENT = "/opt/waldur-site-cluster"
# What systemd reads otherwise than it is written: blanks, quotes, backslashes, specifiers.
UNWRITABLE = re.compile(r"[^A-Za-z0-9_./@+:,~-]")


@dataclass(frozen=True)
class OldUnit:
    """One unit in its two forms: for systemd of today, and for one older than 247."""

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


OLD_UNITS = (
    _of_mode("order_process"),
    _of_mode("membership_sync"),
    _of_mode("report", "waldur-site-agent-report"),
    _of_mode("event_process"),
    _of_direction("pull", "order_process"),
    _of_direction("push", "report", "membership_sync"),
)


def of_cluster(systemd: Path, *, legacy: bool) -> dict[str, str]:
    """Return the units of worker, beat, bridge, Flower, metrics and console, and the target of them all, by file name.

    `systemd` is the folder of that name in `shipped.folder()`; `legacy`: for systemd older than 247.
    """
    units = sorted((systemd / "legacy" if legacy else systemd).glob("*.service"))
    return {path.name: path.read_text(encoding="utf-8") for path in [*units, systemd / shipped.TARGET.name]}


def of_name(systemd: Path, name: str, *, legacy: bool) -> str | None:
    """Return the text of the unit that a site has under an old name, without `.service`; None for no such name."""
    unit = next((each for each in OLD_UNITS if name in each.names), None)
    return old_unit(systemd, unit, legacy=legacy or name.endswith("-legacy")) if unit else None


def old_unit(systemd: Path, unit: OldUnit, *, legacy: bool) -> str:
    """Return an old unit: the worker's, with its own names, command and log."""
    worker = systemd / ("legacy" if legacy else "") / "waldur-site-worker.service"
    lines = [
        f"# {' and '.join(unit.modes)}, without a broker: docs/migrate.md. Made by agent/host/unit_files.py",
        f"# of systemd/{'legacy/' if legacy else ''}waldur-site-worker.service, which has the reasons.",
    ]
    for line in worker.read_text(encoding="utf-8").splitlines():
        lines += [line] if line[:1] != "#" else []
    changed = {
        "Description": [f"Description=Waldur site agent: {' and '.join(unit.modes)}"],
        "Documentation": [f"Documentation=file://{ENVIRONMENT}/share/waldur-site-cluster/docs/migrate.md"],
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


def installed(text: str, *, programs: Path, files: Path, config: Path) -> str:
    """Return a unit with the paths of this installation: its `programs`, its shipped `files` and its configuration.

    Raises ConfigError for a path that a unit cannot name.
    """
    for path in (programs, files, config):
        if UNWRITABLE.search(str(path)) or not path.is_absolute():
            raise ConfigError(
                f"a systemd unit cannot name {path}: it must be absolute and without blanks, quotes, `%` and `$`"
            )
    text = text.replace(f"{ENVIRONMENT}/share/waldur-site-cluster", str(files))
    return text.replace(f"{ENVIRONMENT}/bin", str(programs)).replace(CONFIG, str(config))


def at_places_of_the_reference(systemd: Path) -> dict[str, str]:
    """Return the files of `systemd-conf/` with their texts."""
    return {
        **{unit.file: old_unit(systemd, unit, legacy=False) for unit in OLD_UNITS},
        **{unit.legacy: old_unit(systemd, unit, legacy=True) for unit in OLD_UNITS},
    }


if __name__ == "__main__":
    for place, content in at_places_of_the_reference(shipped.folder() / "systemd").items():
        (shipped.folder() / "systemd-conf" / place).write_text(content, encoding="utf-8")
