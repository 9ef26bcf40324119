# SPDX-License-Identifier: MIT
"""The name of a bridge at an MQTT broker: the host and the first number that no other bridge on it has.

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

from agent.core.errors import StateError
from agent.host import files
from agent.state.dead_letters import FOLDER

log = logging.getLogger(__name__)

BRIDGES_AT_MOST = 32


class Instance:
    """Holds its number until the process ends."""

    def __init__(self, state_dir: Path) -> None:
        self._descriptor = -1
        host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
        number = self._lock_number(state_dir / FOLDER)
        self.name = f"{host}-{secrets.token_hex(4) if number is None else number}"

    def _lock_number(self, folder: Path) -> int | None:
        """Lock the first free number. None, with a warning, where the folder cannot be used: sessions at the broker are
        then new each time.
        """
        try:
            with files.acting_as_owner(folder):
                files.make_folder(folder)
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
        except OSError as error:
            log.warning("%s cannot be used: %s", folder, error.strerror)
        except StateError as error:
            log.warning("%s cannot be used: %s", folder, error)
        return None
