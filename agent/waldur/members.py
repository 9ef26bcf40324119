# SPDX-License-Identifier: MIT
"""People: the team of a resource, the offering's users, and accounts without a person behind them."""

from __future__ import annotations

from agent.core.errors import WaldurLacks
from agent.core.model import OfferingUser, TeamMember
from agent.waldur import records
from agent.waldur.client import WaldurClient

USER_FIELDS = ("uuid", "user_uuid", "username", "state", "is_restricted")
# What is exposed of a person is the provider's choice; 2024 servers know the first two only.
PERSON_FIELDS = ("user_username", "user_full_name", "user_first_name", "user_last_name", "user_email")
ACCOUNT_LISTS = ("list_project_service_accounts", "list_course_accounts")


def team(client: WaldurClient, resource_uuid: str) -> list[TeamMember]:
    """Everyone with a role in the resource's project."""
    path = f"marketplace-provider-resources/{resource_uuid}/team/"
    return [records.team_member(item) for item in client.pages(path)]


def offering_users(client: WaldurClient, *, with_persons: bool = False) -> list[OfferingUser]:
    """Users of the offering in whatever state, restricted ones too; with their names and e-mail when asked."""
    names = (*USER_FIELDS, *(PERSON_FIELDS if with_persons else ()))
    params = [("offering_uuid", client.offering_uuid), *(("field", name) for name in names)]
    return [records.offering_user(item) for item in client.pages("marketplace-offering-users/", params)]


def project_accounts(client: WaldurClient) -> dict[str, frozenset[str]]:
    """Usernames of active service and course accounts by project uuid; empty on servers without them."""
    found: dict[str, set[str]] = {}
    for listing in ACCOUNT_LISTS:
        if not client.if_supported(listing):
            continue
        try:
            for item in client.pages(f"marketplace-provider-offerings/{client.offering_uuid}/{listing}/"):
                if item.get("state") == "OK" and item.get("username"):
                    project = records.hex_text(item, "project_uuid")
                    found.setdefault(project, set()).add(str(item["username"]))
        except WaldurLacks as error:
            client.note_missing(listing, error)
    return {project: frozenset(names) for project, names in found.items()}
