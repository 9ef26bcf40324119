# SPDX-License-Identifier: MIT
"""Keys of resources (8.1): Waldur is told what cannot be done here, so that nobody waits for it."""

from __future__ import annotations

from agent.waldur.client import WaldurClient

PATH = "marketplace-resource-api-keys/"


def fail(client: WaldurClient, key_uuid: str, message: str) -> None:
    client.post(f"{PATH}{key_uuid}/set_erred/", {"error_message": message}, repeatable=True)
