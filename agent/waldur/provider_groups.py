# SPDX-License-Identifier: MIT
"""The groups that Waldur has for projects of a provider (8.1.3): one for each, for all of the provider's offerings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.core.directory import ProviderGroup
from agent.core.errors import WaldurAnswerError, WaldurLacks
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

PATH = "marketplace-service-provider-project-groups/"
FEATURE = "project groups of providers"


def listed(client: WaldurClient) -> list[ProviderGroup] | None:
    """Return every project group of the offering's provider, in use or not; None where the server has none.

    Raises WaldurError, also where the listing is not whole or a group cannot be understood.
    """
    if not client.if_supported(FEATURE):
        return None
    params = [("provider_offering_uuid", client.offering_uuid)]
    try:
        found = [_group(item) for item in client.pages(PATH, params, order=OLDEST_FIRST)]
    except WaldurLacks as error:
        client.note_missing(FEATURE, error)
        return None
    client.features.note_there(FEATURE)
    return found


def _group(item: Mapping[str, Any]) -> ProviderGroup:
    name, gid = item.get("name"), item.get("gid")
    members, offerings = item.get("members"), item.get("offerings")
    is_number = gid is None or (isinstance(gid, int) and not isinstance(gid, bool))
    if not (isinstance(name, str) and name and is_number and isinstance(members, list)):
        raise WaldurAnswerError(
            f"GET {PATH}: group {item.get('uuid')} has no name, number or members that can be understood",
            method="GET",
            path=PATH,
        )
    rows = offerings if isinstance(offerings, list) else []
    slug = item.get("customer_slug")
    return ProviderGroup(
        name=name,
        gid=gid,
        members=frozenset(member for member in members if isinstance(member, str) and member),
        offerings=frozenset(records.hex_text(row, "uuid") for row in rows if isinstance(row, Mapping)),
        organization=slug if isinstance(slug, str) else "",
    )
