# SPDX-License-Identifier: MIT
"""`cluster`: all services of a one-machine site in one foreground process."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.cli.web import passwords
from agent.config import environment
from agent.config.load import ENVIRONMENT
from agent.config.model import Settings
from agent.config.schema import DEFAULT_BROKER_URL
from agent.core.errors import ConfigError
from agent.host import broker_program, files
from agent.host.children import StopRequest
from agent.host.supervisor import Part, Supervisor
from agent.run.service import services
from tasks.queue import lean_celery

EMBEDDED, SITE = "embedded", "site"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Above the time that a task may take (tasks.limits): a worker finishes its write.
WORKER_STOP_S = 330.0
STOP_S = 30.0
# Celery takes these before its own settings.
CELERY_VARIABLES = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")
COMMAND = ("-c", "from agent.cli.main import main; main()")


def command(config_file: Path | None, broker: str | None) -> int:
    settings = load_settings(config_file)
    chosen = broker or (EMBEDDED if settings.broker_url.reveal() == DEFAULT_BROKER_URL else SITE)
    stop_request = StopRequest()
    for stop in STOP_SIGNALS:
        signal.signal(stop, stop_request.make)
    with _alone(settings.state_dir) as folder:
        Supervisor(_parts(settings, folder, is_embedded=chosen == EMBEDDED), _say).run(stop_request)
    return 0


def _parts(settings: Settings, folder: Path, *, is_embedded: bool) -> list[Part]:
    """Return what is to be run, in the order in which the parts need each other."""
    # They get our environment, with what leads them to the same configuration and state.
    variables = {name: value for name, value in os.environ.items() if name not in CELERY_VARIABLES}
    if settings.source != ENVIRONMENT:
        variables[environment.CONFIG] = os.path.abspath(settings.source)
    variables[environment.STATE_DIR] = str(settings.state_dir)
    found = []
    if is_embedded:
        config, address, url = broker_program.on_socket(folder)
        variables[environment.BROKER_URL] = url
        argv = [broker_program.find(), str(config)]
        found.append(Part("broker", argv, variables, STOP_S, lambda: broker_program.answers(address)))
    celery = [sys.executable, lean_celery.PROGRAM, "--quiet", "-A", "tasks"]
    lean = {**lean_celery.MEMORY, **variables}
    worker = [*celery, "worker", "--without-mingle", "--without-gossip"]
    found.append(Part("worker", worker, lean, WORKER_STOP_S))
    found.append(Part("beat", [*celery, "beat"], lean, STOP_S))
    if any(services.wanted_types(offering) for offering in settings.offerings):
        found.append(Part("bridge", [sys.executable, *COMMAND, "bridge"], variables, STOP_S))
    # What is wrong with the file the console says: it keeps no worker from running.
    if settings.console.oidc or os.path.exists(settings.state_dir / passwords.NAME):
        found.append(Part("console", [sys.executable, *COMMAND, "console"], variables, STOP_S))
    else:
        _say("cluster", "no console: nobody can log in before `console passwd NAME --role operator`")
    return found


@contextmanager
def _alone(state_dir: Path) -> Iterator[Path]:
    """Make the broker's folder and hold it. Raises ConfigError where another `cluster` has it: two brokers on one set
    of files would destroy it.
    """
    folder = state_dir / broker_program.FOLDER
    try:
        with files.acting_as_owner(folder):
            files.make_folder(folder)
            lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror or error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"another `cluster` runs with the state_dir {state_dir}: stop that one first"
        ) from error
    else:
        yield folder
    finally:
        os.close(lock)


def _say(name: str, line: str) -> None:
    echo(f"{name:<7} | {line}", err=True)
