# SPDX-License-Identifier: MIT
"""The accounts of people at the offering: their states and their names.

A move from a state that does not allow it answers 400. Servers of 2024 have no states, those before 7.7.5 no
`set_error_creating`, those before 7.7.4 no deletion: WaldurLacks, and they do without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.directory_actions import BeginDeletion, CompleteDeletion, FailDeletion
from agent.core.errors import WaldurAnswerError
from agent.core.model import OfferingUser
from agent.core.waldur_actions import WaldurAction
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, Request, WaldurClient

PATH = "marketplace-offering-users/"


def move(client: WaldurClient, uuid: str, step: str, body: Mapping[str, str] | None = None) -> None:
    """Do a step such as `begin_creating` with a user. Raises WaldurLacks where the server has no such step."""
    client.post_if_there(step, f"{PATH}{uuid}/{step}/", body)


def states(client: WaldurClient, wanted: Iterable[str]) -> dict[str, str]:
    """Return the offering's users in these states, the state by the user's uuid."""
    params = [("offering_uuid", client.offering_uuid), *(("state", state) for state in wanted)]
    params += [("field", name) for name in ("uuid", "user_uuid", "username", "state", "offering_uuid")]
    items = client.pages(PATH, params, order=OLDEST_FIRST)
    users = [records.offering_user(records.of_offering(item, client.offering_uuid)) for item in items]
    return {user.uuid: user.state for user in users}


def has_name_elsewhere(client: WaldurClient, user: OfferingUser, customer_uuid: str) -> bool:
    """Return whether this person, or another one, has the same name at an offering of the provider, and is not on the
    way out there. Where the directory has an older name, its entry carries the person's login: for anybody else that
    name counts not.
    """
    names = {fold(user.username): False, fold(user.cluster_name): user.cluster_name != user.username}
    return any(
        other.uuid != user.uuid
        and fold(other.username) == name
        and not other.is_on_the_way_out
        and (not is_old or other.user_uuid == user.user_uuid)
        for name, is_old in names.items()
        for other in _with_name(client, name, customer_uuid)
    )


def _with_name(client: WaldurClient, name: str, customer_uuid: str) -> Iterator[OfferingUser]:
    """Yield the users at the provider's offerings who have the name, or one that it is a part of."""
    params = [("query", name), ("provider_uuid", customer_uuid)]
    params += [("field", field) for field in ("uuid", "user_uuid", "username", "state", "is_restricted")]
    return (records.offering_user(item) for item in client.pages(PATH, params, order=OLDEST_FIRST))


def assign_username(client: WaldurClient, user: OfferingUser, username: str) -> OfferingUser:
    """Write the name and return the user as Waldur has it then (OK). Raises WaldurAnswerError where it is not kept."""
    path = f"{PATH}{user.uuid}/"
    seen = records.offering_user(client.change("PATCH", path, {"username": username}))
    if seen.username != username:
        raise WaldurAnswerError(
            f"PATCH {path}: the username {username} was not kept, it is {seen.username or 'empty'} now",
            method="PATCH",
            path=path,
        )
    return replace(user, username=seen.username, state=seen.state)


ACTIONS: Mapping[type[WaldurAction], Request] = {
    BeginDeletion: lambda client, a: move(client, a.offering_user, "set_deleting"),
    CompleteDeletion: lambda client, a: move(client, a.offering_user, "set_deleted"),
    FailDeletion: lambda client, a: move(client, a.offering_user, "set_error_deleting"),
}
