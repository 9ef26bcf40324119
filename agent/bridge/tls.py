# SPDX-License-Identifier: MIT
"""TLS of both wires: verified by the system's authorities or those of `ca_file`, unless the site says otherwise."""

from __future__ import annotations

import ssl

from agent.bridge.connection import ConnectionFailed
from agent.bridge.model import Address


def context(address: Address) -> ssl.SSLContext:
    """Return the context of a connection. Raises ConnectionFailed where the file of authorities cannot be used."""
    try:
        made = ssl.create_default_context(cafile=address.ca_file or None)
    except OSError as error:
        raise ConnectionFailed(f"the certificates in {address.ca_file} cannot be used: {error}") from error
    if not address.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
