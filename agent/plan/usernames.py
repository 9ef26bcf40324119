# SPDX-License-Identifier: MIT
"""How the account of an offering user comes to its name: which users to take up, which calls follow.

state                        answer                        calls                                  then
Requested, Error creating    (taken up)                    BeginUsername                          Creating
Creating                     a name                        AssignUsername                         OK
Pending ...                  a name                        CompleteValidation, AssignUsername     OK
any of these                 no name                       none                                   stays
any of these                 the person must act           AskAccountLinking or AskValidation     Pending ...
Pending ...                  the same again                none                                   stays
Creating                     a fault of this person        FailUsername                           Error creating
Pending ...                  a fault of this person        none                                   stays
any of these                 an outage, or unknown         none                                   stays
any of these                 a fault of the site           none                                   stays

An account that is OK keeps its name for ever. One that is OK without a name (a pass was cut off between the two
calls of a pending one), and one of a server without states (2024), only gets a name. Who had a name before, which
Waldur has lost, gets that one again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agent.core.actions import Action
from agent.core.directory_actions import (
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginUsername,
    CompleteValidation,
    FailUsername,
)
from agent.core.errors import (
    AccountLinkingRequired,
    AdditionalValidationRequired,
    BackendError,
    PersonMustAct,
    SiteAgentError,
)
from agent.core.model import OfferingFacts, OfferingUser

SERVICE_PROVIDER = "service_provider"
MAX_COMMENT_URL = 2000
LISTED = 5


class UserState(StrEnum):
    """The states that the agent acts on, as Waldur spells them. `NONE`: a server of 2024, which has no states."""

    NONE = ""
    REQUESTED = "Requested"
    CREATING = "Creating"
    PENDING_LINKING = "Pending account linking"
    PENDING_VALIDATION = "Pending additional validation"
    OK = "OK"
    ERROR_CREATING = "Error creating"


STATES = frozenset(UserState)
PENDING = (UserState.PENDING_LINKING, UserState.PENDING_VALIDATION)
TO_BEGIN = (UserState.REQUESTED, UserState.ERROR_CREATING)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why no names are made at this offering."""

    reason: str
    # An operator should set it right.
    is_fault: bool = False


def obstacle(plugin_options: Mapping[str, Any]) -> Obstacle | None:
    """Return what the offering's options say against names of ours."""
    policy = plugin_options.get("username_generation_policy")
    if policy != SERVICE_PROVIDER:
        return Obstacle(f"Waldur makes the usernames (username_generation_policy is {policy or 'not set'})")
    if plugin_options.get("service_provider_can_create_offering_user") is not True:
        return Obstacle(
            "the offering's option service_provider_can_create_offering_user is not set: no username can be made, "
            "set it in Waldur",
            is_fault=True,
        )
    return None


def leaves_names_to_us(facts: OfferingFacts) -> bool:
    """Return whether the names of the offering are the provider's to give; Waldur makes them itself otherwise."""
    return facts.plugin_options.get("username_generation_policy") == SERVICE_PROVIDER


def lost_names(new: Collection[OfferingUser], unknown_members: Collection[str], few: int) -> str:
    """Return why new names wait for a person: Waldur seems to have lost those that people have. Empty when it has not.

    `unknown_members`: members of the offering's accounts whose names no user has in Waldur; up to `few` may have left.
    """
    if min(len(new), len(unknown_members)) <= few:
        return ""
    some = ", ".join(sorted(unknown_members)[:LISTED]) + (" ..." if len(unknown_members) > LISTED else "")
    return (
        f"{len(new)} people would get new usernames, and {len(unknown_members)} members of the offering's accounts "
        f"({some}) belong to no user in Waldur. Did it lose their usernames? "
        "Then write them again there"
    )


def due(users: Iterable[OfferingUser]) -> list[OfferingUser]:
    """Return users without a name whom we may give one, the new ones first; the others keep the order they came in."""
    waiting = [
        user
        for user in users
        if user.uuid and not user.username and not user.is_restricted and user.state in STATES
    ]
    return sorted(waiting, key=lambda user: user.state != UserState.REQUESTED)


def opening(user: OfferingUser) -> Action | None:
    """Return what reports to Waldur that we have begun; None where it knows, or has no state for it."""
    if user.state not in TO_BEGIN:
        return None
    return BeginUsername(offering_user=user.uuid, reason=whose(user))


def closing(
    user: OfferingUser, answer: str | SiteAgentError, *, is_new: bool = False, before: str = ""
) -> tuple[Action, ...]:
    """Return the calls that follow from the backend's answer, a name or an error, for a user that has been opened.
    `is_new`: the person has had no name here; `before`: the one that the person had.
    """
    uuid, why = user.uuid, whose(user)
    if isinstance(answer, str):
        name = AssignUsername(offering_user=uuid, username=answer, is_new=is_new, before=before, reason=why)
        if user.state in PENDING:
            return (CompleteValidation(offering_user=uuid, reason=why), name) if answer else ()
        return (name,) if answer else ()
    if user.state in (UserState.NONE, UserState.OK):
        return ()
    if isinstance(answer, PersonMustAct):
        comment, url = str(answer), answer.comment_url[:MAX_COMMENT_URL]
        if isinstance(answer, AccountLinkingRequired) and user.state != UserState.PENDING_LINKING:
            return (AskAccountLinking(offering_user=uuid, comment=comment, comment_url=url),)
        if isinstance(answer, AdditionalValidationRequired) and user.state != UserState.PENDING_VALIDATION:
            return (AskValidation(offering_user=uuid, comment=comment, comment_url=url),)
        return ()
    is_own = isinstance(answer, BackendError) and not answer.retryable and not answer.of_host
    if is_own and user.state not in PENDING:
        return (FailUsername(offering_user=uuid, message=str(answer), reason=why),)
    return ()


def dry_run_actions(
    user: OfferingUser, answer: str | SiteAgentError, *, is_new: bool = False, before: str = ""
) -> tuple[Action, ...]:
    """Return all the calls of one user, as far as they can be known without making anything."""
    begin = opening(user)
    opened = () if begin is None else (begin,)
    return (*opened, *closing(user, answer, is_new=is_new, before=before))


def whose(user: OfferingUser) -> str:
    """Return why a name is made: for whom, by the login in Waldur, or their uuid where the server hides that."""
    return f"Waldur user {user.waldur_username or user.user_uuid}"
