# SPDX-License-Identifier: MIT
"""Keys of resources (8.1): what Waldur wants done with them, and what it is told. No secret of a key is ever asked for:
only fields that have none are read.
"""

from __future__ import annotations

from agent.core.model import KeyCommand
from agent.waldur import members, records
from agent.waldur.client import WaldurClient

FEATURE = "marketplace-resource-api-keys"
PATH = f"{FEATURE}/"
FIELDS = ("uuid", "resource_uuid", "state", "pending_action")
WAITING = ("Creating", "Updating", "Deleting")
# What a key waits for whose `pending_action` is blank.
USUAL = {"Creating": "create", "Deleting": "delete"}


def waiting(client: WaldurClient) -> list[KeyCommand]:
    """Return the offering's keys with which something is to be done; none on servers without keys (before 8.1)."""
    params = [("offering_uuid", client.offering_uuid), *(("state", state) for state in WAITING)]
    params += [("field", name) for name in FIELDS]
    listed = members.if_there(client, FEATURE, PATH, params) or ()
    return [each for each in map(_command, listed) if each.state in WAITING]


def get(client: WaldurClient, key_uuid: str) -> KeyCommand:
    return _command(client.get(f"{PATH}{key_uuid}/", [("field", name) for name in FIELDS]))


def fail(client: WaldurClient, key_uuid: str, message: str) -> None:
    client.post(f"{PATH}{key_uuid}/set_erred/", {"error_message": message}, repeatable=True)


def set_deleted(client: WaldurClient, key_uuid: str) -> None:
    client.post(f"{PATH}{key_uuid}/set_deleted/", repeatable=True)


def _command(record: records.Json) -> KeyCommand:
    state = str(record.get("state") or "")
    return KeyCommand(
        uuid=records.uuid(record, "a key"),
        resource_uuid=records.hex_text(record, "resource_uuid"),
        state=state,
        action=str(record.get("pending_action") or USUAL.get(state, "rotate")),
    )
