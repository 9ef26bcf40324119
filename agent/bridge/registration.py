# SPDX-License-Identifier: MIT
"""Have Waldur prepare the events of one offering: the agent's identity and service, subscriptions and queues.

From the newest way to the oldest: one queue for all types (8.1), a queue per type (7.9.9), a subscription per type.
A type that the server refuses is noted and skipped, and asked for again with a later `prepare`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.bridge.model import Address, Login, Source, Wire
from agent.config.model import Mode, Offering
from agent.config.secret import Secret
from agent.core.errors import ConfigError, WaldurError, WaldurLacks
from agent.core.events import ObjectType
from agent.run.service import services
from agent.waldur import events
from agent.waldur.client import WaldurClient
from agent.waldur.identities import Presence, Program

log = logging.getLogger(__name__)

SERVICE = "event_process"
AGENT_QUEUE, CREATE_QUEUE, SUBSCRIPTION = "register_queue", "create_queue", "event-subscriptions"
PROCESSORS = {Mode.ORDER_PROCESS: "orders by events", Mode.MEMBERSHIP_SYNC: "membership by events"}
# A server answers so for a type that it does not know, and names the field or its place in a list. The same status
# with words alone is about RabbitMQ: Waldur could not reach it (8.0).
UNKNOWN_TYPE = 400
NAMES_TYPE = re.compile(r"(^|; )(observable_object_type|observable_objects|object_types?|\d+): ")
OWNED_BY_ANOTHER = 409


@dataclass(frozen=True, slots=True)
class Prepared:
    """Sources to listen to."""

    sources: tuple[Source, ...] = ()
    # The types that the server refused, with its words.
    refused: dict[ObjectType, str] = field(default_factory=dict)
    # The queue had fewer types for a while, so that messages may be missing.
    is_narrowed: bool = False


def address(offering: Offering) -> Address:
    """Return where the offering's broker is."""
    broker, access = offering.events, offering.access
    return Address(
        wire=Wire.STOMP if broker.stomp_enabled else Wire.MQTT,
        host=broker.ws_host,
        port=broker.ws_port,
        path=broker.ws_path,
        tls=broker.use_tls,
        verify=access.verify_ssl,
        ca_file=access.ca_file,
        proxy=Secret(access.proxy),
    )


def is_unknown_type(error: WaldurError) -> bool:
    """Return whether the server does not know a type of messages that it was asked for."""
    return error.status == UNKNOWN_TYPE and bool(NAMES_TYPE.search(error.detail))


class Registration:
    """The events of one offering in Waldur. The identity is registered once, and known from then on."""

    def __init__(self, offering: Offering, client: WaldurClient, program: Program) -> None:
        self.offering = offering
        self._client = client
        self._presence = Presence(client, program)
        self._address = address(offering)
        # Of the agent's one queue: its types, and whether it had fewer for a while since the last `Prepared`.
        self._accepted: frozenset[ObjectType] = frozenset()
        self._is_narrowed = False

    def prepare(self) -> Prepared:
        """Make or find everything, and renew the service. Raises WaldurError, and ConfigError without a token."""
        token = self.offering.access.token
        if token is None:
            raise ConfigError(
                f"offering {self.offering.name}: brokers know waldur_api_token only, and this offering logs in by "
                "OIDC: it is polled as without events"
            )
        try:
            return self._prepare(token)
        except WaldurError as error:
            if not self._presence.is_gone(error):
                raise
        return self._prepare(token)

    def renew_service(self) -> bool:
        """Keep the service and its processors active in Waldur. False: all has to be prepared again. Raises
        WaldurError.
        """
        try:
            self._renew_service()
        except WaldurError as error:
            if not self._presence.is_gone(error):
                raise
            return False
        return True

    def _prepare(self, token: Secret) -> Prepared:
        types = services.wanted_types(self.offering)
        self._presence.identify()
        prepared = self._agent_queue(types, token) if self._address.wire is Wire.STOMP else None
        if prepared is None:
            prepared = self._queue_per_type(types, token)
        self._renew_service()
        return prepared

    def _renew_service(self) -> None:
        if self._presence.identity:
            backends = {name: self.offering.backend_of(mode) for mode, name in PROCESSORS.items()}
            self._presence.activate(SERVICE, {name: backend for name, backend in backends.items() if backend})

    def _agent_queue(self, types: Sequence[ObjectType], token: Secret) -> Prepared | None:
        """Prepare the agent's one queue; None where the server has none, or it belongs to another user."""
        if not self._presence.identity or not self._client.if_supported(AGENT_QUEUE):
            return None
        refused: dict[ObjectType, str] = {}
        try:
            queue = self._declare_queue(types, refused)
        except WaldurLacks as error:
            self._client.note_missing(AGENT_QUEUE, error)
            return None
        except WaldurError as error:
            if error.status != OWNED_BY_ANOTHER:
                raise
            log.warning("offering %s: %s; listening to a queue per type instead", self.offering.name, error)
            return None
        if queue is None:
            return Prepared((), refused)
        login = Login(self._address, queue.vhost, queue.login, token)
        source = Source(login, queue.name, self.offering.uuid, None, self._accepted)
        is_narrowed, self._is_narrowed = self._is_narrowed, False
        return Prepared((source,), refused, is_narrowed)

    def _declare_queue(
        self, types: Sequence[ObjectType], refused: dict[ObjectType, str]
    ) -> events.AgentQueue | None:
        """Declare the queue for all types that the server takes; None where it takes none. Adds to `refused`.

        One type that it does not know makes it refuse them all, which changes nothing; what it takes are the queue's
        types from that moment. So each refused type is tried together with what was accepted before.
        """
        queue, _ = self._try_types(types)
        if queue is not None:
            self._accepted = frozenset(types)
            return queue
        accepted = [kind for kind in types if kind in self._accepted]
        if accepted:
            queue, _ = self._try_types(accepted)
        if queue is None:
            accepted, self._is_narrowed = [], True
        for kind in [kind for kind in types if kind not in accepted]:
            found, reason = self._try_types([*accepted, kind])
            if found is None:
                refused[kind] = reason
            else:
                queue = found
                accepted.append(kind)
        self._accepted = frozenset(accepted)
        return queue

    def _try_types(self, types: Sequence[ObjectType]) -> tuple[events.AgentQueue | None, str]:
        """Return the queue, or the server's words where it refuses a type. Raises WaldurError for anything else."""
        try:
            return events.agent_queue(self._client, self._presence.identity, types), ""
        except WaldurError as error:
            if not is_unknown_type(error):
                raise
            return None, error.detail

    def _queue_per_type(self, types: Sequence[ObjectType], token: Secret) -> Prepared:
        """Prepare a subscription for each type, with a queue of its own where the server does not make it itself."""
        sources: list[Source] = []
        refused: dict[ObjectType, str] = {}
        nothing = Prepared((), dict.fromkeys(types, "this server sends no events"))
        if not self._client.if_supported(SUBSCRIPTION):
            return nothing
        is_stomp, offering_uuid = self._address.wire is Wire.STOMP, self.offering.uuid
        for kind in types:
            try:
                subscription = events.subscription(self._client, self._presence.identity, kind)
                # Servers before 7.9.9 make the queue themselves; topics need none.
                if is_stomp and self._client.if_supported(CREATE_QUEUE):
                    try:
                        events.create_queue(self._client, subscription, kind)
                    except WaldurLacks as error:
                        self._client.note_missing(CREATE_QUEUE, error)
            except WaldurLacks as error:
                self._client.note_missing(SUBSCRIPTION, error)
                return nothing
            except WaldurError as error:
                if not is_unknown_type(error):
                    raise
                refused[kind] = error.detail
                continue
            name = (
                f"subscription_{subscription.uuid}_offering_{offering_uuid}_{kind}"
                if is_stomp
                else f"subscription/{subscription.uuid}/offering/{offering_uuid}/{kind}"
            )
            login = Login(self._address, subscription.user_uuid, subscription.uuid, token)
            sources.append(Source(login, name, offering_uuid, kind, frozenset({kind})))
        return Prepared(tuple(sources), refused)
