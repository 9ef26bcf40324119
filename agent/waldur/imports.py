# SPDX-License-Identifier: MIT
"""Import of accounts that a cluster has and Waldur does not: requests by people, and what we offer them (7.6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.core.errors import WaldurError
from agent.core.waldur_actions import OfferImport, WaldurAction
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, Request, WaldurClient

REQUESTS = "backend-resource-requests/"
OFFERED = "backend-resources/"
SENT, PROCESSING = "Sent", "Processing"
NAME_LENGTH = 150


def state(client: WaldurClient, request_uuid: str) -> str:
    found = client.get(f"{REQUESTS}{request_uuid}/", [("field", "state")]).get("state")
    return found if isinstance(found, str) else ""


def begin(client: WaldurClient, request_uuid: str) -> None:
    client.post(f"{REQUESTS}{request_uuid}/start_processing/")


def finish(client: WaldurClient, request_uuid: str) -> None:
    client.post(f"{REQUESTS}{request_uuid}/set_done/")


def fail(client: WaldurClient, request_uuid: str, message: str) -> None:
    body = {"error_message": message, "error_traceback": ""}
    client.post(f"{REQUESTS}{request_uuid}/set_erred/", body)


def offered(client: WaldurClient) -> frozenset[str]:
    """Return accounts that were offered before and not imported yet."""
    found = client.pages(OFFERED, [("offering_uuid", client.offering_uuid)], order=OLDEST_FIRST)
    return frozenset(str(item.get("backend_id") or "") for item in found)


def offer(client: WaldurClient, account: str, project_uuid: str, limits: Mapping[str, Any]) -> None:
    """Offer an account. Not repeated by itself: a second request makes a second row."""
    body = {
        "name": account[:NAME_LENGTH],
        "project": project_uuid,
        "offering": client.offering_uuid,
        "backend_id": account,
        "backend_metadata": {"limits": dict(limits)},
    }
    client.post(OFFERED, body)


def project_with_slug(client: WaldurClient, slug: str) -> str:
    """Return the project's uuid; empty where the token sees none of that slug. Some servers do not filter."""
    params = [("slug", slug), ("field", "uuid"), ("field", "slug")]
    for item in client.pages("projects/", params, order=OLDEST_FIRST):
        if item.get("slug") == slug:
            return records.uuid(item, "a project")
    return ""


def is_gone(error: WaldurError) -> bool:
    """Return whether the request was withdrawn, or another agent has it."""
    return error.status in (404, 409)


ACTIONS: Mapping[type[WaldurAction], Request] = {
    OfferImport: lambda client, a: offer(client, a.account, a.project, dict(a.limits)),
}
