# SPDX-License-Identifier: MIT
"""Where the messages about an offering come out: one queue per agent (8.1), a queue per type (7.9.9), or a
subscription per type. All calls find what is there already, so that a restart makes nothing twice.

An endpoint that a server lacks raises WaldurLacks; a type that it does not know is a refusal (400).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.errors import WaldurAnswerError
from agent.core.events import ObjectType
from agent.waldur import records
from agent.waldur.client import OLDEST_FIRST, WaldurClient
from agent.waldur.identities import IDENTITIES

SUBSCRIPTIONS = "event-subscriptions/"
# By this subscriptions that Waldur cannot find for us (before 7.8.5) are known to be ours.
DESCRIPTION = "waldur-site-cluster"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Events of Waldur that a broker has for us."""

    # The login at the broker.
    uuid: str
    # The broker's virtual host.
    user_uuid: str


@dataclass(frozen=True, slots=True)
class AgentQueue:
    """The one queue of an agent, for all types. The login at the broker is its own."""

    login: str
    name: str
    vhost: str


def agent_queue(client: WaldurClient, identity: str, types: Sequence[ObjectType]) -> AgentQueue:
    """Declare the agent's queue for these types and no others. Raises WaldurError: 409 where another user has it."""
    answer = client.post(
        f"{IDENTITIES}{identity}/register_queue/", {"object_types": list(types)}, repeatable=True
    )
    return AgentQueue(
        login=_text(answer, "rmq_username"), name=_text(answer, "queue_name"), vhost=_text(answer, "vhost")
    )


def subscription(client: WaldurClient, identity: str, object_type: ObjectType) -> Subscription:
    """Return the subscription of the token's user to a type: one for all of their offerings.

    Without an identity the server has no way to find it: ours are recognised by their description.
    """
    if identity:
        body: Mapping[str, Any] = {"observable_object_type": object_type, "description": DESCRIPTION}
        path = f"{IDENTITIES}{identity}/register_event_subscription/"
        return _subscription(client.post(path, body, repeatable=True))
    wanted = [{"object_type": object_type}]
    for item in client.pages(SUBSCRIPTIONS, order=OLDEST_FIRST):
        if item.get("description") == DESCRIPTION and item.get("observable_objects") == wanted:
            return _subscription(item)
    body = {"observable_objects": wanted, "description": DESCRIPTION}
    return _subscription(client.post(SUBSCRIPTIONS, body))


def create_queue(client: WaldurClient, subscribed: Subscription, object_type: ObjectType) -> None:
    """Make the queue of this offering and type; without it the server sends nothing (7.9.9)."""
    body = {"offering_uuid": client.offering_uuid, "object_type": object_type}
    client.post(f"{SUBSCRIPTIONS}{subscribed.uuid}/create_queue/", body, repeatable=True)


def _subscription(answer: Any) -> Subscription:
    if not isinstance(answer, Mapping):
        raise WaldurAnswerError("Waldur sent no subscription", method="POST", path=SUBSCRIPTIONS)
    return Subscription(
        uuid=records.uuid(answer, "a subscription"),
        user_uuid=records.uuid(answer, "a subscription", "user_uuid"),
    )


def _text(answer: Any, key: str) -> str:
    value = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(value, str) or not value:
        raise WaldurAnswerError(f"Waldur sent a queue without {key}", method="POST", path="register_queue")
    return value
