# SPDX-License-Identifier: MIT
"""Which agents run on this host, by the list of processes: ours, and the reference's services of the same name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SCRIPT = "waldur_site_agent"
PROGRAMS = ("waldur-site-cluster", "manage.py")
CONFIG = "WALDUR_SITE_AGENT_CONFIG"
# As settings name their source that come from variables alone (agent.config.load), and these variables.
ENVIRONMENT = "the environment"
OLDEST = ("WALDUR_API_URL", "WALDUR_API_TOKEN", "WALDUR_OFFERING_UUID")
USUAL_MODE = "order_process"
MODE_OPTIONS, CONFIG_OPTIONS = ("-m", "--mode"), ("-c", "--config-file", "--config")
# Of `celery -A tasks`, and of our own program.
CELERY_ROLES, OUR_ROLES = ("worker", "beat"), ("bridge", "cluster")


@dataclass(frozen=True, slots=True)
class Agent:
    """One process."""

    pid: int
    # The mode of a service, or worker, beat, bridge, cluster.
    role: str
    is_service: bool
    # The file that it was given, empty where that is not to be seen.
    config: str = ""
    # It belongs to this installation.
    is_ours: bool = True


def agents(proc: Path = PROC) -> list[Agent]:
    """Return the agents of this host, without the children of workers. Processes that end while it runs are skipped."""
    found = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = [
                word.decode("utf-8", "replace") for word in (folder / "cmdline").read_bytes().split(b"\0")
            ]
            found += _agents(int(folder.name), words[:-1], folder)
        except OSError:
            continue
    roles = {(agent.role, agent.pid) for agent in found}
    return [agent for agent in found if (agent.role, _parent(proc, agent.pid)) not in roles]


def of_configuration(source: str, running: Iterable[Agent]) -> list[Agent]:
    """Return the agents that have the configuration file `source`, and those whose file is not to be seen."""
    own = os.path.abspath(source)
    return [agent for agent in running if not agent.config or os.path.abspath(agent.config) == own]


def services_alone(source: str, running: Iterable[Agent]) -> tuple[str, ...]:
    """Return our services of one process with the configuration file `source`; none where another part may have it."""
    here = of_configuration(source, running)
    if not all(agent.is_service for agent in here):
        return ()
    return tuple(sorted({agent.role for agent in here if agent.is_ours}))


def _agents(pid: int, words: Sequence[str], folder: Path) -> list[Agent]:
    """Return the agent that these words started, once for each mode; none for any other program."""
    started = [Path(word).name for word in words[:3]]
    if SCRIPT in started[:2]:
        script = words[started.index(SCRIPT)]
        # A folder may be a link: `/opt/waldur-site-cluster` to that of a version.
        is_ours = Path(script).parent.resolve() == Path(sys.executable).parent.resolve()
        config = _option(words, CONFIG_OPTIONS) or _configured(folder)
        modes = dict.fromkeys(_values(words, MODE_OPTIONS)) or (USUAL_MODE,)
        return [Agent(pid, mode, True, config, is_ours) for mode in modes]
    if "tasks" in words and "-A" in words:
        role = next((word for word in words if word in CELERY_ROLES), "")
    elif any(program in started for program in PROGRAMS) or "agent.cli.main" in " ".join(words[:3]):
        role = next((word for word in words if word in OUR_ROLES), "")
    else:
        return []
    # After the role: a `-c` before it is Python's own.
    config = _option(words[words.index(role) :], CONFIG_OPTIONS) if role in OUR_ROLES else ""
    return [Agent(pid, role, False, config or _configured(folder))] if role else []


def _option(words: Sequence[str], names: Sequence[str]) -> str:
    """Return the value of an option in any way to write it; empty where it is not given."""
    return next(_values(words, names), "")


def _values(words: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for place, word in enumerate(words):
        if word in names:
            yield from words[place + 1 : place + 2]
        for name in names:
            if name.startswith("--") and word.startswith(f"{name}="):
                yield word.partition("=")[2]
            elif len(name) == 2 and word.startswith(name) and len(word) > 2:
                yield word[2:]


def _configured(folder: Path) -> str:
    """Return the file that the environment of a process names, or `ENVIRONMENT` where it configures the oldest service;
    empty where we may not look.
    """
    try:
        written = (folder / "environ").read_bytes().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    variables = dict(each.split("=", 1) for each in written if "=" in each)
    usual = ENVIRONMENT if all(map(variables.get, OLDEST)) else ""
    return variables.get(CONFIG) or usual


def _parent(proc: Path, pid: int) -> int:
    try:
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
