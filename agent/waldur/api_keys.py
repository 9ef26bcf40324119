# SPDX-License-Identifier: MIT
"""Keys of resources (8.1): what Waldur wants done with them, what is reported to it, and their usage. No secret of a
key is ever asked for: only fields that have none are read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agent.config.secret import Secret
from agent.core.key_actions import ConfirmKey
from agent.core.model import KeyCommand
from agent.core.usage import KeyUsageRecord
from agent.core.waldur_actions import ConfirmKeyDeletion, RefuseKey, WaldurAction
from agent.waldur import members, records
from agent.waldur.client import Request, WaldurClient

log = logging.getLogger(__name__)

FEATURE = "marketplace-resource-api-keys"
PATH = f"{FEATURE}/"
FIELDS = ("uuid", "resource_uuid", "state", "pending_action", "client_id")
USAGE_FIELDS = ("uuid", "resource_uuid", "client_id", "usage_period", "current_usages")
WAITING = ("Creating", "Updating", "Deleting")
# What a key waits for whose `pending_action` is blank; for one that is Updating it is unknown.
USUAL = {"Creating": "create", "Deleting": "delete"}


def waiting(client: WaldurClient) -> list[KeyCommand]:
    """Return the offering's keys with which something is to be done; none on servers without keys (before 8.1)."""
    params = [("offering_uuid", client.offering_uuid), *(("state", state) for state in WAITING)]
    params += [("field", name) for name in FIELDS]
    listed = members.if_there(client, FEATURE, PATH, params) or ()
    found = [each for each in map(_command, listed) if each.state in WAITING]
    for each in found:
        if not each.action:
            log.warning("key %s: Waldur does not say what is to be done with it: left as it is", each.uuid)
    return found


def get(client: WaldurClient, key_uuid: str) -> KeyCommand:
    return _command(client.get(f"{PATH}{key_uuid}/", [("field", name) for name in FIELDS]))


def fail(client: WaldurClient, key_uuid: str, message: str) -> None:
    client.post(f"{PATH}{key_uuid}/set_erred/", {"error_message": message}, repeatable=True)


def set_deleted(client: WaldurClient, key_uuid: str) -> None:
    client.post(f"{PATH}{key_uuid}/set_deleted/", repeatable=True)


def set_key(client: WaldurClient, key_uuid: str, client_id: str, secret: Secret) -> None:
    body = {"api_key": secret.reveal(), "client_id": client_id}
    client.post(f"{PATH}{key_uuid}/set_key/", body, repeatable=True)


def confirm(client: WaldurClient, key_uuid: str, state: str) -> None:
    """Report that the key is `paused`, or `ok`."""
    client.post(f"{PATH}{key_uuid}/set_{state}/", repeatable=True)


def all_keys(client: WaldurClient) -> list[KeyUsageRecord]:
    """Return all keys of the offering, deleted ones too, with the usage that Waldur has of them; none on servers
    without keys.
    """
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in USAGE_FIELDS)]
    return [_usage(record) for record in members.if_there(client, FEATURE, PATH, params) or ()]


def report_usage(client: WaldurClient, key_uuid: str, month: str, usages: Mapping[str, str]) -> None:
    body = {"usages": dict(usages), "billing_period": f"{month}-01"}
    client.post(f"{PATH}{key_uuid}/report_usage/", body, repeatable=True)


def _usage(record: records.Json) -> KeyUsageRecord:
    usages = record.get("current_usages")
    return KeyUsageRecord(
        uuid=records.uuid(record, "a key"),
        resource=records.hex_text(record, "resource_uuid"),
        client_id=str(record.get("client_id") or ""),
        month=str(record.get("usage_period") or "")[:7],
        usages={str(name): str(amount) for name, amount in usages.items()}
        if isinstance(usages, Mapping)
        else {},
    )


def _command(record: records.Json) -> KeyCommand:
    state = str(record.get("state") or "")
    return KeyCommand(
        uuid=records.uuid(record, "a key"),
        resource_uuid=records.hex_text(record, "resource_uuid"),
        state=state,
        action=str(record.get("pending_action") or USUAL.get(state, "")),
        client_id=str(record.get("client_id") or ""),
    )


ACTIONS: Mapping[type[WaldurAction], Request] = {
    RefuseKey: lambda client, a: fail(client, a.key, a.message),
    ConfirmKey: lambda client, a: confirm(client, a.key, a.state),
    ConfirmKeyDeletion: lambda client, a: set_deleted(client, a.key),
}
