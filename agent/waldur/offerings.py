# SPDX-License-Identifier: MIT
"""The offering itself: components, options, plans, and whether a name is still free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.core.errors import WaldurAnswerError, WaldurError, WaldurLacks
from agent.core.model import OfferingFacts
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

PATH = "marketplace-provider-offerings/"
UNIQUENESS = "check_unique_backend_id"
# A server that has no catalogue of QoS (before 8.1) leaves `qos_profiles` out.
FIELDS = (
    "uuid",
    "name",
    "state",
    "backend_id",
    "customer_uuid",
    "customer_name",
    "components",
    "partitions",
    "qos_profiles",
    "plugin_options",
    "secret_options",
)


@dataclass(frozen=True, slots=True)
class Listed:
    """An offering in the list of those that a user provides."""

    uuid: str
    name: str
    state: str
    type: str
    provider: str


def provided(client: WaldurClient) -> list[Listed]:
    """Return the offerings on whose provider's side the token's user is, also archived ones. Raises WaldurError."""
    names = ("uuid", "name", "state", "type", "customer_name")
    return [
        Listed(records.hex_text(item, "uuid"), *(str(item.get(name) or "") for name in names[1:]))
        for item in client.pages(PATH, [("field", name) for name in names], order=OLDEST_FIRST)
    ]


def facts(client: WaldurClient) -> OfferingFacts:
    """Return the offering. Raises WaldurError, with a hint (404) where it does not exist or the token may not
    see it.
    """
    path = f"{PATH}{client.offering_uuid}/"
    try:
        return records.offering(client.get(path, [("field", name) for name in FIELDS]), client.offering_uuid)
    except WaldurError as error:
        if error.status != 404 or isinstance(error, WaldurLacks):
            raise
        raise WaldurError(
            f"{error}".rstrip(".")
            + ". Check waldur_offering_uuid, and that the token's user is a manager of this "
            "offering or an owner of its provider",
            method="GET",
            path=path,
            status=404,
            detail=error.detail,
        ) from error


def plan_quotas(client: WaldurClient, plan_uuid: str) -> dict[str, int]:
    """Return the amounts of a plan's fixed components, without zeros."""
    return records.quotas(client.get(f"marketplace-plans/{plan_uuid}/", [("field", "quotas")]))


def name_is_free(client: WaldurClient, name: str, *, all_offerings: bool) -> bool:
    """Ask Waldur whether no resource has this backend id yet. Servers before 7.9 do not know: taken as free."""
    if not client.if_supported(UNIQUENESS):
        return True
    body = {"backend_id": name, "check_all_offerings": all_offerings}
    try:
        answer = client.post(f"{PATH}{client.offering_uuid}/{UNIQUENESS}/", body, repeatable=True)
    except WaldurLacks as error:
        client.note_missing(UNIQUENESS, error)
        return True
    if not isinstance(answer, Mapping):
        raise WaldurAnswerError(
            f"POST {UNIQUENESS}: the answer is not an object", method="POST", path=UNIQUENESS
        )
    return answer.get("is_unique") is not False


def can_say_what_is_free(client: WaldurClient) -> bool:
    """Return whether the last answer of `name_is_free` came from Waldur; false once its server was seen to lack the
    call.
    """
    return client.if_supported(UNIQUENESS)


def create_component(client: WaldurClient, body: Mapping[str, Any]) -> None:
    client.post(f"{PATH}{client.offering_uuid}/create_offering_component/", dict(body))


def update_component(client: WaldurClient, body: Mapping[str, Any]) -> None:
    client.post(f"{PATH}{client.offering_uuid}/update_offering_component/", dict(body), repeatable=True)
