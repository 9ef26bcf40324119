# SPDX-License-Identifier: MIT
"""The settings of this process, read once. A wrong configuration ends the process with a message."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import beat_schedule as table
from agent.config.model import Mode, Offering, Settings
from agent.config.secret import SecretUrl
from agent.core.errors import ConfigError
from agent.host import broker_program

log = logging.getLogger(__name__)

# Commands of Celery's that speak with the broker only: they run as a user who may not read an offering's secrets.
WITHOUT_LOGINS = frozenset(
    {"beat", "flower", "inspect", "control", "status", "list", "purge", "events", "call"}
)


def needs_logins(words: Sequence[str]) -> bool:
    """Return whether the process started with these words talks to Waldur: `celery -A tasks worker -n beat` does."""
    command = next((word for word in words if word == "worker" or word in WITHOUT_LOGINS), "worker")
    return command == "worker"


# Settings that a command of ours has read already, with its own `-c`.
_given: list[Settings] = []
# The modes of an offering that this process serves, and beat starts.
_modes_of: list[Callable[[Offering], frozenset[Mode]]] = []


def use(loaded: Settings, modes_of: Callable[[Offering], frozenset[Mode]] | None = None) -> None:
    """Use these settings in this process, for all modes or for some. Call it before the first use of `settings`."""
    _given[:] = [loaded]
    _modes_of[:] = [modes_of] if modes_of else []
    settings.cache_clear()


def reached(loaded: Settings) -> Settings:
    """Return the settings with the broker of a `cluster` that runs on this state_dir, where one does."""
    url = broker_program.url_of_running(loaded.state_dir)
    return replace(loaded, broker_url=SecretUrl(url)) if url else loaded


def modes_of(offering: Offering) -> frozenset[Mode]:
    """Return the modes of an offering that this process serves."""
    return _modes_of[0](offering) if _modes_of else table.all_modes(offering)


@cache
def settings() -> Settings:
    """Return the settings of this process. Raises SystemExit where they are wrong."""
    if _given:
        return _given[0]
    # Imported here: it loads the backends, which commands that only ask the broker do not need.
    from agent.run.service import configuration

    try:
        loaded, warnings = configuration.usable(None, os.environ, with_logins=needs_logins(sys.argv[1:]))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error
    for warning in warnings:
        log.warning("%s", warning)
    return loaded


def offering(offering_uuid: str) -> Offering:
    """Return an offering of this process's configuration. Raises ConfigError when it has none of that uuid."""
    found = settings().offering(offering_uuid)
    if found is None:
        raise ConfigError(
            f"offering {offering_uuid} is not in the configuration {settings().source} of this process: "
            "the task was sent by a beat or bridge with another file"
        )
    return found
