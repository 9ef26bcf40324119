# SPDX-License-Identifier: MIT
"""The groups that Waldur has for projects of a provider (8.1.3): one for each, for all of the provider's offerings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.core.directory import ProviderGroup
from agent.core.errors import WaldurAnswerError
from agent.waldur import members, records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

PATH = "marketplace-service-provider-project-groups/"
FEATURE = "project groups of providers"


def listed(client: WaldurClient) -> list[ProviderGroup] | None:
    """Return every project group of the offering's provider, in use or not; None where the server has none.

    Raises WaldurError, also where the listing is not whole or a group cannot be understood.
    """
    params = [("provider_offering_uuid", client.offering_uuid)]
    items = members.if_there(client, FEATURE, PATH, params, order=OLDEST_FIRST)
    return None if items is None else [_group(item) for item in items]


def _group(item: Mapping[str, Any]) -> ProviderGroup:
    name, gid, people = item.get("name"), item.get("gid"), item.get("members")
    is_number = gid is None or (isinstance(gid, int) and not isinstance(gid, bool))
    are_names = isinstance(people, list) and all(isinstance(person, str) for person in people)
    if not (isinstance(name, str) and name and is_number and are_names):
        raise WaldurAnswerError(
            f"GET {PATH}: group {item.get('uuid')} has no name, number or members that can be understood",
            method="GET",
            path=PATH,
        )
    slug = item.get("customer_slug")
    return ProviderGroup(
        name=name,
        gid=gid,
        members=frozenset(filter(None, people or ())),
        offerings=_offerings(item.get("offerings")),
        organization=slug if isinstance(slug, str) else "",
    )


def _offerings(rows: object) -> frozenset[str] | None:
    """Return the offerings at which the project has resources; None where the answer does not say so."""
    if not isinstance(rows, list):
        return None
    uuids = [records.hex_text(row, "uuid") if isinstance(row, Mapping) else "" for row in rows]
    return frozenset(uuids) if all(uuids) else None
