# SPDX-License-Identifier: MIT
"""People: the team of a resource, the offering's users, and accounts without a person behind them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from agent.core.errors import WaldurError, WaldurLacks
from agent.core.model import OfferingUser, TeamMember
from agent.http.client import Params
from agent.waldur import pool, records
from agent.waldur.client import OLDEST_FIRST, WaldurClient

USER_FIELDS = ("uuid", "user_uuid", "username", "state", "runtime_state", "is_restricted", "offering_uuid")
# What is exposed of a person is the provider's choice; 2024 servers know the first two only.
PERSON_FIELDS = (
    "user_username", "user_full_name", "user_first_name", "user_last_name", "user_email",
    "uidnumber", "primarygroup", "home_directory", "login_shell",
)  # fmt: skip
ACCOUNT_LISTS = ("list_project_service_accounts", "list_course_accounts")


def team(client: WaldurClient, resource_uuid: str) -> list[TeamMember]:
    """Return everyone with a role in the resource's project."""
    path = f"marketplace-provider-resources/{resource_uuid}/team/"
    return [records.team_member(item) for item in client.pages(path, is_paged=False)]


def offering_users(client: WaldurClient, *, with_persons: bool = False) -> list[OfferingUser]:
    """Return users of the offering in whatever state, restricted ones too; with their names and e-mail when asked."""
    return _offering_users(client, (*USER_FIELDS, *(PERSON_FIELDS if with_persons else ())))


def offering_users_of(client: WaldurClient, people: Iterable[str]) -> list[OfferingUser]:
    """Return the same of these people only (uuids), by a request for each. Raises WaldurError."""
    answers = pool.each(people, lambda uuid: _offering_users(client, USER_FIELDS, ("user_uuid", uuid)))
    found: list[OfferingUser] = []
    for uuid, answer in answers.items():
        if isinstance(answer, WaldurError):
            raise answer
        found += [user for user in answer if user.user_uuid == uuid]
    return found


def _offering_users(
    client: WaldurClient, fields: Iterable[str], *filters: tuple[str, str]
) -> list[OfferingUser]:
    params = [("offering_uuid", client.offering_uuid), *filters, *(("field", name) for name in fields)]
    items = client.pages("marketplace-offering-users/", params, order=OLDEST_FIRST)
    return [records.offering_user(records.of_offering(item, client.offering_uuid)) for item in items]


def project_accounts(client: WaldurClient) -> dict[str, frozenset[str]]:
    """Return usernames of active service and course accounts by project uuid; empty on servers without them."""
    found: dict[str, set[str]] = {}
    for item in listed_accounts(client):
        if item.get("state") == "OK" and item.get("username"):
            found.setdefault(records.hex_text(item, "project_uuid"), set()).add(str(item["username"]))
    return {project: frozenset(names) for project, names in found.items()}


def listed_accounts(client: WaldurClient) -> Iterator[Mapping[str, Any]]:
    """Return service and course accounts of all projects, in whatever state."""
    for listing in ACCOUNT_LISTS:
        path = f"marketplace-provider-offerings/{client.offering_uuid}/{listing}/"
        yield from if_there(client, listing, path) or ()


def if_there(
    client: WaldurClient, feature: str, path: str, params: Params = (), *, order: str = ""
) -> Iterator[Mapping[str, Any]] | None:
    """Return the items of a list, None on servers that lack it, which are asked once only. Raises WaldurLacks where the
    server had it before: then a gateway is at fault, and nothing is known.
    """
    if not client.if_supported(feature):
        return None
    items = client.pages(path, params, order=order)
    try:
        first = next(items, None)
    except WaldurLacks as error:
        client.note_missing(feature, error)
        return None
    client.features.note_there(feature)
    return iter(()) if first is None else chain([first], items)
