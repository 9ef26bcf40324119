# SPDX-License-Identifier: MIT
"""The accounts of people at the offering: their states and their names.

A move from a state that does not allow it answers 400. Servers of 2024 have no states, those before 7.7.5 no
`set_error_creating`: WaldurLacks, and they do without.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.core.errors import WaldurAnswerError
from agent.core.model import OfferingUser
from agent.waldur import records
from agent.waldur.client import WaldurClient

PATH = "marketplace-offering-users/"


def begin_creating(client: WaldurClient, uuid: str) -> None:
    _move(client, uuid, "begin_creating")


def set_validation_complete(client: WaldurClient, uuid: str) -> None:
    _move(client, uuid, "set_validation_complete")


def set_error_creating(client: WaldurClient, uuid: str) -> None:
    _move(client, uuid, "set_error_creating")


def ask_account_linking(client: WaldurClient, uuid: str, comment: str, comment_url: str) -> None:
    _move(client, uuid, "set_pending_account_linking", {"comment": comment, "comment_url": comment_url})


def ask_validation(client: WaldurClient, uuid: str, comment: str, comment_url: str) -> None:
    _move(client, uuid, "set_pending_additional_validation", {"comment": comment, "comment_url": comment_url})


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


def _move(client: WaldurClient, uuid: str, step: str, body: dict[str, Any] | None = None) -> None:
    client.post_if_there(step, f"{PATH}{uuid}/{step}/", body)
