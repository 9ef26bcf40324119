# SPDX-License-Identifier: MIT
"""What Waldur prepares for the events of one offering: the agent's identity and service, subscriptions and queues.

From the newest way to the oldest: one queue for all types (8.1), a queue per type (7.9.9), a subscription per type.
A type that the server refuses is noted and left out, and asked for again with a later `prepare`.
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
from agent.run import event_coverage
from agent.waldur import events, identities
from agent.waldur.client import WaldurClient
from agent.waldur.events import Subscription
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

SERVICE = "event_process"
IDENTITY, AGENT_QUEUE, CREATE_QUEUE, SUBSCRIPTION = (
    "marketplace-site-agent-identities",
    "register_queue",
    "create_queue",
    "event-subscriptions",
)
PROCESSORS = {Mode.ORDER_PROCESS: "orders by events", Mode.MEMBERSHIP_SYNC: "membership by events"}
# A server answers so for a type that it does not know, and names the field or its place in a list. The same status
# with words alone tells of RabbitMQ: Waldur could not reach it (8.0).
UNKNOWN_TYPE = 400
NAMES_TYPE = re.compile(r"(^|; )(observable_object_type|observable_objects|object_types?|\d+): ")
OWNED_BY_ANOTHER = 409
NO_SUCH_OBJECT = 404


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where to listen, and the types that the server refused with its words. `is_narrowed`: the queue had fewer types
    for a while, so that messages may be missing.
    """

    sources: tuple[Source, ...] = ()
    refused: dict[ObjectType, str] = field(default_factory=dict)
    is_narrowed: bool = False


def address(offering: Offering) -> Address:
    """Where the offering's broker is."""
    told, access = offering.events, offering.access
    return Address(
        wire=Wire.STOMP if told.stomp_enabled else Wire.MQTT,
        host=told.ws_host,
        port=told.ws_port,
        path=told.ws_path,
        tls=told.use_tls,
        verify=access.verify_ssl,
        ca_file=access.ca_file,
    )


def is_unknown_type(error: WaldurError) -> bool:
    return error.status == UNKNOWN_TYPE and bool(NAMES_TYPE.search(error.detail))


class Registration:
    """One offering. Its identity is registered once, and known from then on."""

    def __init__(self, offering: Offering, client: WaldurClient, program: Program) -> None:
        self.offering = offering
        self._client = client
        self._program = program
        self._identity = ""
        self._address = address(offering)
        # Of the agent's one queue: its types, and whether it had fewer for a while since anybody was told.
        self._accepted: frozenset[ObjectType] = frozenset()
        self._is_narrowed = False

    def prepare(self) -> Prepared:
        """Make or find everything, and show that we live. Raises WaldurError, and ConfigError without a token."""
        token = self.offering.access.token
        if token is None:
            raise ConfigError(
                f"offering {self.offering.name}: brokers know waldur_api_token only, and this offering logs in by "
                "OIDC: it is polled as without events"
            )
        try:
            return self._prepared(token)
        except WaldurError as error:
            if not self._is_forgotten(error):
                raise
        return self._prepared(token)

    def show_life(self) -> bool:
        """Keep the service and its processors active in Waldur. False: all has to be prepared again. Raises
        WaldurError.
        """
        try:
            self._show_life()
        except WaldurError as error:
            if not self._is_forgotten(error):
                raise
            return False
        return True

    def _prepared(self, token: Secret) -> Prepared:
        types = event_coverage.wanted_types(self.offering)
        identity = self._registered()
        prepared = self._agent_queue(identity, types, token) if self._address.wire is Wire.STOMP else None
        if prepared is None:
            prepared = self._each_type(identity, types, token)
        self._show_life()
        return prepared

    def _is_forgotten(self, error: WaldurError) -> bool:
        """Whether the identity was deleted in Waldur, as it seems; then it is registered once more."""
        if error.status != NO_SUCH_OBJECT or isinstance(error, WaldurLacks) or not self._identity:
            return False
        log.warning("offering %s: the agent's identity is made again: %s", self.offering.name, error)
        self._identity = ""
        return True

    def _show_life(self) -> None:
        if not self._identity:
            return
        service = identities.register_service(self._client, self._identity, SERVICE)
        for mode, name in PROCESSORS.items():
            backend = self.offering.backend_of(mode)
            if backend:
                identities.register_processor(
                    self._client, service, name, backend=backend, version=self._program.version
                )

    def _registered(self) -> str:
        """The identity's uuid; empty on servers without them."""
        if not self._identity and self._client.if_supported(IDENTITY):
            try:
                self._identity = identities.register(self._client, self._program)
            except WaldurLacks as error:
                self._client.note_missing(IDENTITY, error)
        return self._identity

    def _agent_queue(self, identity: str, types: Sequence[ObjectType], token: Secret) -> Prepared | None:
        """The agent's one queue; None where the server has none, or it belongs to somebody else."""
        if not identity or not self._client.if_supported(AGENT_QUEUE):
            return None
        refused: dict[ObjectType, str] = {}
        try:
            queue = self._queue_of(identity, types, refused)
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

    def _queue_of(
        self, identity: str, types: Sequence[ObjectType], refused: dict[ObjectType, str]
    ) -> events.AgentQueue | None:
        """The queue for all types that the server takes; None where it takes none.

        One type that it does not know makes it refuse them all, which changes nothing; what it takes are the queue's
        types from that moment. So each refused type is tried together with what was accepted before.
        """
        queue, _ = self._try(identity, types)
        if queue is not None:
            self._accepted = frozenset(types)
            return queue
        accepted = [kind for kind in types if kind in self._accepted]
        if accepted:
            queue, _ = self._try(identity, accepted)
        if queue is None:
            accepted, self._is_narrowed = [], True
        for kind in [kind for kind in types if kind not in accepted]:
            found, words = self._try(identity, [*accepted, kind])
            if found is None:
                refused[kind] = words
            else:
                queue = found
                accepted.append(kind)
        self._accepted = frozenset(accepted)
        return queue

    def _try(self, identity: str, types: Sequence[ObjectType]) -> tuple[events.AgentQueue | None, str]:
        """The queue, or the words by which a type is refused. Raises WaldurError for anything else."""
        try:
            return events.agent_queue(self._client, identity, types), ""
        except WaldurError as error:
            if not is_unknown_type(error):
                raise
            return None, error.detail

    def _each_type(self, identity: str, types: Sequence[ObjectType], token: Secret) -> Prepared:
        sources: list[Source] = []
        refused: dict[ObjectType, str] = {}
        if not self._client.if_supported(SUBSCRIPTION):
            return Prepared((), dict.fromkeys(types, "this server sends no events"))
        for kind in types:
            try:
                subscribed = events.subscription(self._client, identity, kind)
                self._make_queue(subscribed, kind)
            except WaldurLacks as error:
                self._client.note_missing(SUBSCRIPTION, error)
                return Prepared((), dict.fromkeys(types, "this server sends no events"))
            except WaldurError as error:
                if not is_unknown_type(error):
                    raise
                refused[kind] = error.detail
            else:
                sources.append(self._source(subscribed, kind, token))
        return Prepared(tuple(sources), refused)

    def _make_queue(self, subscribed: Subscription, kind: ObjectType) -> None:
        """Servers before 7.9.9 make it themselves; topics need none."""
        if self._address.wire is Wire.MQTT or not self._client.if_supported(CREATE_QUEUE):
            return
        try:
            events.create_queue(self._client, subscribed, kind)
        except WaldurLacks as error:
            self._client.note_missing(CREATE_QUEUE, error)

    def _source(self, subscribed: Subscription, kind: ObjectType, token: Secret) -> Source:
        offering = self.offering.uuid
        name = (
            f"subscription_{subscribed.uuid}_offering_{offering}_{kind}"
            if self._address.wire is Wire.STOMP
            else f"subscription/{subscribed.uuid}/offering/{offering}/{kind}"
        )
        login = Login(self._address, subscribed.user_uuid, subscribed.uuid, token)
        return Source(login, name, offering, kind, frozenset({kind}))
