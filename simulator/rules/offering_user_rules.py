# SPDX-License-Identifier: MIT
"""How a member's account at an offering comes to be and moves between its states (8.x).

A wrong move is a 400 that names the current state by number. In 2024 there are no states at all.
"""

from __future__ import annotations

from simulator.rules.errors import detail
from simulator.world.records import Offering, OfferingUser, OfferingUserState, Resource, User
from simulator.world.store import Store

S = OfferingUserState
_PENDING = (S.PENDING_ACCOUNT_LINKING, S.PENDING_ADDITIONAL_VALIDATION)

# action -> (target, states it may come from)
TRANSITIONS: dict[str, tuple[OfferingUserState, tuple[OfferingUserState, ...]]] = {
    "begin_creating": (S.CREATING, (S.REQUESTED, S.ERROR_CREATING)),
    "set_pending_account_linking": (
        S.PENDING_ACCOUNT_LINKING,
        (S.CREATING, S.ERROR_CREATING, S.PENDING_ADDITIONAL_VALIDATION),
    ),
    "set_pending_additional_validation": (
        S.PENDING_ADDITIONAL_VALIDATION,
        (S.CREATING, S.ERROR_CREATING, S.PENDING_ACCOUNT_LINKING),
    ),
    "set_validation_complete": (S.OK, _PENDING),
    "set_ok": (S.OK, (S.REQUESTED, S.CREATING, *_PENDING, S.ERROR_CREATING, S.ERROR_DELETING)),
    "set_error_creating": (S.ERROR_CREATING, (S.REQUESTED, S.CREATING, *_PENDING)),
    "request_deletion": (S.REQUESTED_DELETION, (S.OK,)),
    "set_deleting": (S.DELETING, (S.REQUESTED_DELETION, S.ERROR_DELETING)),
    "set_deleted": (S.DELETED, (S.DELETING,)),
    "set_error_deleting": (S.ERROR_DELETING, (S.REQUESTED_DELETION, S.DELETING)),
}
_TAKES_COMMENT = ("set_pending_account_linking", "set_pending_additional_validation")
_NAMED_MOVE_TO_OK = (S.REQUESTED, S.CREATING, *_PENDING, S.ERROR_CREATING)


def move(store: Store, row: OfferingUser, action: str, *, comment: str = "", comment_url: str = "") -> None:
    target, sources = TRANSITIONS[action]
    if row.state not in sources:
        names = ", ".join(state.value for state in sources)
        raise detail(400, f"{action} is not possible in state {row.state.number}, only in: {names}")
    row.state = target
    row.modified = store.clock.now()
    if action in _TAKES_COMMENT:
        row.service_provider_comment = comment
        row.service_provider_comment_url = comment_url
    elif action == "set_validation_complete":
        row.service_provider_comment = ""
        row.service_provider_comment_url = ""


def set_username(store: Store, row: OfferingUser, username: str) -> None:
    """Store the name; a name given to an account on its way moves it to OK."""
    row.username = username
    row.modified = store.clock.now()
    if username and row.state in _NAMED_MOVE_TO_OK:
        row.state = S.OK


def blank_usernames(store: Store, offering: Offering) -> None:
    """Forget all names at an offering, as a server of 2024 does whenever its options are edited; under a policy of its
    own it makes new ones.
    """
    policy = offering.plugin_options.get("username_generation_policy", "service_provider")
    for row in store.offering_users.where("offering", offering.uuid):
        row.username = "" if policy == "service_provider" else store.users[row.user_uuid].username
        row.modified = store.clock.now()


def create(store: Store, offering: Offering, user: User, *, username: str = "") -> OfferingUser:
    now = store.clock.now()
    return store.offering_users.add(
        OfferingUser(
            uuid=store.uuids.new(),
            user_uuid=user.uuid,
            offering_uuid=offering.uuid,
            created=now,
            modified=now,
            username=username,
            state=S.OK if username else S.REQUESTED,
        )
    )


def ensure_for_project(store: Store, resource: Resource) -> None:
    """Give every member of the resource's project a row at the offering, nameless where it is new."""
    for grant in store.active_grants(resource.project_uuid):
        ensure(store, store.offering_of(resource), store.users[grant.user_uuid])


def ensure(store: Store, offering: Offering, user: User) -> None:
    """Give a user a row at the offering, unless there is one; nameless, unless the server makes the names."""
    if store.offering_user(offering.uuid, user.uuid) is None:
        policy = offering.plugin_options.get("username_generation_policy", "service_provider")
        create(store, offering, user, username="" if policy == "service_provider" else user.username)
