# SPDX-License-Identifier: MIT
"""The bridge of all offerings with events: prepares them in Waldur, keeps a connection for each login, and says by
heartbeats for which offerings it listens. Several may run at once: they share queues, and jobs that wait already are
not queued twice.
"""

from __future__ import annotations

import logging
import operator
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent import __version__
from agent.bridge.connection import BrokerConnection
from agent.bridge.dead_letters import DeadLetters
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Login, Outbox, Source, Wire
from agent.bridge.mqtt import MqttConnection
from agent.bridge.registration import Prepared, Registration
from agent.bridge.stomp import StompConnection
from agent.config.model import Mode, Offering
from agent.core.backoff import Backoff
from agent.core.errors import ConfigError, WaldurError
from agent.core.events import ObjectType, QueueUnavailable
from agent.core.said import Said
from agent.host import service_manager
from agent.host.heartbeat import Heartbeat, Part
from agent.host.service_manager import ALIVE, READY, STOPPING
from agent.observability import logs
from agent.observability.metrics import Sample
from agent.run.service import event_coverage, services
from agent.waldur.client import WaldurClient
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

TICK_S = 1.0
# Waldur takes a service for idle that was not renewed for ten minutes.
RENEW_SERVICE_S = 300.0
# Between requests to Waldur that fail.
PREPARE_AGAIN = Backoff(base_s=2.0, cap_s=120.0)
# After a broker refused us or lost a queue, Waldur is not asked more often than this.
REPAIR_S = 10.0
# Types that a server refused, and servers without events, are asked again after this.
REFUSED_AGAIN_S = 3600.0
# A queue that is lost this soon again is asked for more and more rarely: each time it disturbs the others.
LOST_AGAIN_S = 1800.0
DRAIN_S = 10.0
# All connections together, after the last acknowledgement.
CLOSE_S = 5.0
PREPARED_AT_ONCE = 4
# Labels of metrics, and what the dispatcher counts under.
MESSAGES = {
    "understood": "understood",
    "nothing_due": "nothing due",
    "dead_letter": "dead letters",
    "fault": "faults",
}
JOBS = {"queued": "queued", "merged": "waiting already"}


@dataclass(frozen=True, slots=True)
class BridgeParts:
    """What a bridge is made of."""

    offerings: Sequence[Offering]
    # By offering uuid.
    clients: dict[str, WaldurClient]
    program: Program
    outbox: Outbox
    state_dir: Path
    # Distinguishes this bridge from others.
    instance: str
    # Touched as a heartbeat, where it is not empty.
    own_file: str = ""


@dataclass(slots=True)
class _OfferingState:
    """One offering: what Waldur has prepared for it, and when Waldur is asked next. Times are monotonic seconds."""

    registration: Registration
    # How many sources it may have, while nothing is prepared.
    expected_sources: int
    prepared: Prepared = field(default_factory=Prepared)
    # Waldur knows the prepared sources, as far as we know.
    is_prepared: bool = False
    is_being_prepared: bool = False
    next_request_s: float = 0.0
    # When the types that the server refused are asked for again.
    retry_refused_s: float = 0.0
    failures: int = 0
    # When Waldur is asked for what a broker does not have; how often that was so, and when it was last.
    repair_s: float = float("inf")
    losses: int = 0
    last_loss_s: float = float("-inf")
    covered_modes: frozenset[Mode] = frozenset()
    heartbeat_s: float = float("-inf")
    said: Said = field(default_factory=Said)

    def repair_within(self, wait_s: float) -> None:
        """Have Waldur prepare everything again, after `wait_s` at the latest."""
        self.is_prepared = False
        self.repair_s = min(self.repair_s, time.monotonic() + wait_s)
        self.next_request_s = min(self.next_request_s, self.repair_s)

    def log_once(self, level: int, message: str) -> None:
        """Log a message, unless it is the one that was logged last."""
        for news in self.said.news("", message):
            log.log(level, "%s", news)


class Bridge:
    """The bridge of one process. `run` returns after `stop`."""

    def __init__(self, parts: BridgeParts, *, tick_s: float = TICK_S) -> None:
        self._parts = parts
        self._tick_s = tick_s
        self._inbox = Inbox()
        self.dispatcher = Dispatcher(self._inbox, parts.outbox, DeadLetters(parts.state_dir))
        self._connections: dict[Login, BrokerConnection] = {}
        self._states = {
            offering.uuid: _OfferingState(
                Registration(offering, parts.clients[offering.uuid], parts.program),
                expected_sources=len(services.wanted_types(offering)),
            )
            for offering in parts.offerings
        }
        self._lock = threading.Lock()
        self._is_stopping = False
        # The connections do not know yet what is prepared.
        self._is_changed = True
        # What connections listened to when heartbeats were considered last, and when that was.
        self._last_active: list[frozenset[Source]] = []
        self._last_heartbeats_s = float("-inf")
        # Set when something was prepared: then the next round is at once.
        self._wake = threading.Event()
        self._heartbeat = Heartbeat(parts.state_dir, Part.BRIDGE, parts.instance, own_file=parts.own_file)

    def run(self) -> None:
        """Run until `stop`; then what came is queued and acknowledged, within a bounded time."""
        self.dispatcher.start()
        service_manager.notify(READY, status=f"listens to the events of {len(self._states)} offerings")
        while not self._is_stopping:
            if self.dispatcher.is_alive:
                service_manager.notify(ALIVE)
            self._start_requests()
            self._update_connections()
            self._send_heartbeats()
            self._heartbeat.renew()
            self._wake.wait(self._tick_s)
            self._wake.clear()
        self._shut_down()

    def stop(self) -> None:
        """Seen at the next tick. A handler of signals may call it: it takes no lock, which `run` might hold."""
        self._is_stopping = True

    def listened_to(self, offering_uuid: str) -> frozenset[ObjectType]:
        """Return the types of an offering's messages that come in now."""
        with self._lock:
            sources = self._states[offering_uuid].prepared.sources
            connections = dict(self._connections)
        active = [
            source
            for source in sources
            if (connection := connections.get(source.login)) is not None
            and source in connection.subscriptions.active
        ]
        return frozenset(kind for source in active for kind in source.types)

    def figures(self) -> Iterator[Sample]:
        """Yield the metrics of this process."""
        yield Sample("build_info", 1, (__version__,))
        counts = self.dispatcher.counts.copy()
        for result, counted in MESSAGES.items():
            yield Sample("bridge_messages_total", counts[counted], (result,))
        for result, counted in JOBS.items():
            yield Sample("bridge_jobs_total", counts[counted], (result,))
        yield Sample("bridge_gaps_total", counts["gaps"])
        yield Sample("bridge_inbox_messages", len(self._inbox))
        yield Sample("bridge_lag_seconds", self._inbox.lag_s())
        for uuid, state in self._states.items():
            wanted = len(services.wanted_types(state.registration.offering))
            yield Sample("bridge_event_types", wanted, (uuid, "wanted"))
            yield Sample("bridge_event_types", len(self.listened_to(uuid)), (uuid, "listened"))

    def _start_requests(self) -> None:
        """Ask Waldur for what is due, in threads. The bridge does not wait for them: a silent Waldur must not delay its
        end.
        """
        now_s = time.monotonic()
        states = sorted(self._states.values(), key=lambda s: s.next_request_s)
        free = PREPARED_AT_ONCE - sum(state.is_being_prepared for state in states)
        due = [state for state in states if not state.is_being_prepared and now_s >= state.next_request_s]
        for state in due[: max(0, free)]:
            state.is_being_prepared = True
            threading.Thread(target=self._prepare, args=(state,), name="waldur", daemon=True).start()

    def _prepare(self, state: _OfferingState) -> None:
        """Have Waldur prepare one offering, or renew its service; whatever comes of it, there is a next time."""
        with logs.about(offering=state.registration.offering.uuid):
            self._prepare_now(state)

    def _prepare_now(self, state: _OfferingState) -> None:
        offering, now_s = state.registration.offering, time.monotonic()
        wait_s = RENEW_SERVICE_S
        state.repair_s = float("inf")
        try:
            is_complete = state.is_prepared and now_s < state.retry_refused_s
            if not (is_complete and state.registration.renew_service()):
                self._note_prepared(state, state.registration.prepare())
            state.failures = 0
        except ConfigError as error:
            wait_s = REFUSED_AGAIN_S
            state.log_once(logging.WARNING, str(error))
        except WaldurError as error:
            wait_s = PREPARE_AGAIN.wait_s(state.failures)
            state.failures += 1
            level = logging.WARNING if error.retryable else logging.ERROR
            state.log_once(level, f"offering {offering.name}: no events yet: {error}")
        except Exception:  # as in the message loop: one offering must not end the others
            wait_s = PREPARE_AGAIN.cap_s
            log.exception("internal error while events of offering %s were prepared", offering.name)
        finally:
            with self._lock:
                state.next_request_s = min(time.monotonic() + wait_s, state.repair_s)
                state.is_being_prepared = False
            self._wake.set()

    def _note_prepared(self, state: _OfferingState, prepared: Prepared) -> None:
        offering = state.registration.offering
        with self._lock:
            state.prepared = prepared
            self._is_changed = True
            state.is_prepared = True
            state.retry_refused_s = time.monotonic() + REFUSED_AGAIN_S if prepared.refused else float("inf")
        if prepared.is_narrowed:
            self._inbox.put_gap(Gap(offering.uuid, "the queue had fewer types for a while"))
        refused = ", ".join(f"{kind} ({reason})" for kind, reason in prepared.refused.items())
        kinds = sorted({kind for source in prepared.sources for kind in source.types})
        state.log_once(
            logging.INFO,
            f"offering {offering.name}: events {', '.join(kinds) or 'of no kind'}"
            + (f"; refused: {refused}" if refused else ""),
        )

    def _update_connections(self) -> None:
        """Keep one connection for each login, listening to all that is prepared for it."""
        if not self._is_changed and all(each.is_alive for each in self._connections.values()):
            return
        self._is_changed = False
        with self._lock:
            wanted: dict[Login, set[Source]] = {}
            for state in self._states.values():
                for source in state.prepared.sources:
                    wanted.setdefault(source.login, set()).add(source)
        total = sum(len(s.prepared.sources) or s.expected_sources for s in self._states.values())
        for login, sources in wanted.items():
            connection = self._connections.get(login)
            if connection is None or not connection.is_alive:
                arguments = {"on_lost": self._note_lost, "on_refused": self._note_refused}
                connection = (
                    StompConnection(login, self._inbox, **arguments)
                    if login.address.wire is Wire.STOMP
                    else MqttConnection(login, self._inbox, instance=self._parts.instance, **arguments)
                )
                with self._lock:
                    self._connections[login] = connection
                connection.start()
            connection.total_sources = total
            connection.want(sources)
        for login in self._connections.keys() - wanted.keys():
            with self._lock:
                connection = self._connections.pop(login)
            connection.close()

    def _note_lost(self, sources: Iterable[Source]) -> None:
        """Stop listening to these until Waldur has made them again: the others of the same login go on."""
        gone = frozenset(sources)
        now_s = time.monotonic()
        for state in self._states_of(gone):
            with self._lock:
                left = tuple(s for s in state.prepared.sources if s not in gone)
                state.prepared = replace(state.prepared, sources=left)
                state.losses = state.losses + 1 if now_s - state.last_loss_s < LOST_AGAIN_S else 1
                state.last_loss_s = now_s
                self._is_changed = True
                state.repair_within(max(REPAIR_S, PREPARE_AGAIN.wait_s(state.losses)))

    def _note_refused(self, sources: Iterable[Source]) -> None:
        """Waldur is asked to make the login again, soon, but not at every refusal."""
        for state in self._states_of(sources):
            with self._lock:
                state.repair_within(REPAIR_S)

    def _states_of(self, sources: Iterable[Source]) -> list[_OfferingState]:
        return [self._states[uuid] for uuid in {source.offering_uuid for source in sources}]

    def _send_heartbeats(self) -> None:
        """Report to beat, now and then and when it has changed, for which offerings and modes events come in."""
        now_s, active = time.monotonic(), [each.subscriptions.active for each in self._connections.values()]
        is_same = len(active) == len(self._last_active) and all(map(operator.is_, active, self._last_active))
        if is_same and now_s - self._last_heartbeats_s < event_coverage.HEARTBEAT_S / 3:
            return
        self._last_active, self._last_heartbeats_s = active, now_s
        for uuid, state in self._states.items():
            modes = event_coverage.covered(state.registration.offering, self.listened_to(uuid))
            is_old = now_s - state.heartbeat_s >= event_coverage.HEARTBEAT_S
            if not modes or not (is_old or modes - state.covered_modes):
                continue
            try:
                self._parts.outbox.send_heartbeat(uuid, modes)
            except QueueUnavailable as error:
                log.debug("no heartbeat: %s", error)
                return
            state.covered_modes, state.heartbeat_s = modes, now_s

    def _shut_down(self) -> None:
        """Take nothing new, queue what came, then end the connections."""
        service_manager.notify(STOPPING)
        connections = list(self._connections.values())
        for connection in connections:
            connection.stop_receiving()
        if not self.dispatcher.drain(DRAIN_S):
            log.warning("%d messages are left to the brokers", len(self._inbox))
        for connection in connections:
            connection.close()
        end_s = time.monotonic() + CLOSE_S
        for connection in connections:
            connection.join(end_s - time.monotonic())
        counts = ", ".join(f"{count} {result}" for result, count in sorted(self.dispatcher.counts.items()))
        self._heartbeat.end()
        log.info("the bridge ends: %s", counts or "no message was received")
