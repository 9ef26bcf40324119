# SPDX-License-Identifier: MIT
"""Notify systemd of the state of this process: ready, alive, stopping. Elsewhere (no NOTIFY_SOCKET) nothing is sent.

The protocol is sd_notify(3): one datagram of NAME=VALUE lines to a Unix socket. Worker, beat and bridge call this from
their main loops only, so that a loop that hangs is not taken for alive.
"""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
# How often a loop says that it is alive where the unit does not ask for more.
PING_S = 30.0
TIMEOUT_S = 2.0


def notify(*lines: str, status: str = "") -> bool:
    """Send these lines, and a sentence for `systemctl status`. Return whether they went; never raises OSError."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if status:
        lines = (*lines, "STATUS=" + " ".join(status.split()))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
            # "@" stands for the zero byte of a name that is not in the file system. A socket that is not read must not
            # hold us up, and a full one is read in a moment.
            client.settimeout(TIMEOUT_S)
            client.connect("\0" + address[1:] if address.startswith("@") else address)
            client.sendall("\n".join(lines).encode())
    except OSError as error:
        log.debug("systemd is not notified: %s", error)
        return False
    return True


def ping_s() -> float:
    """Return how often a loop has to say that it is alive: three times within the unit's WatchdogSec."""
    written = os.environ.get("WATCHDOG_USEC", "")
    return min(PING_S, int(written) / 3e6) if written.isdecimal() and int(written) else PING_S
