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

from agent.state import json_files as state_files

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
        folder = state_dir / "events"
        try:
            state_files.make_folder(state_dir, folder)
            for number in range(BRIDGES_AT_MOST):
                descriptor = os.open(
                    folder / f"bridge-{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
                )
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    continue
                self._descriptor = descriptor
                return number
        except OSError as error:
            log.warning("%s cannot be used: %s", folder, error.strerror)
        return None
