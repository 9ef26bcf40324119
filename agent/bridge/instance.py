# SPDX-License-Identifier: MIT
"""What tells one bridge from another at an MQTT broker: the host and the first number that no other bridge here has.

The same after a restart, so that the broker finds the session again; never the same for two that run at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import socket
from pathlib import Path

from agent.bridge.dead_letters import FOLDER
from agent.core.errors import StateError
from agent.state import files

log = logging.getLogger(__name__)

BRIDGES_AT_MOST = 32


class Instance:
    """Holds its number until the process ends."""

    def __init__(self, state_dir: Path) -> None:
        self._descriptor = -1
        host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
        number = self._number(state_dir)
        self.name = f"{host}-{secrets.token_hex(4) if number is None else number}"

    def _number(self, state_dir: Path) -> int | None:
        """None, with a warning, where the folder cannot be used: sessions at the broker are then new each time."""
        folder = state_dir / FOLDER
        try:
            with files.acting_as_owner(folder):
                files.make_folder(folder)
                return self._first_free(folder)
        except OSError as error:
            log.warning("%s cannot be used: %s", folder, error.strerror)
        except StateError as error:
            log.warning("%s cannot be used: %s", folder, error)
        return None

    def _first_free(self, folder: Path) -> int | None:
        """Raises OSError."""
        for number in range(BRIDGES_AT_MOST):
            path = folder / f"bridge-{number}.lock"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._descriptor = descriptor
            return number
        return None
