# SPDX-License-Identifier: MIT
"""The bridge of all offerings with events: prepares them in Waldur, keeps a link for each login, and says for which
offerings it listens. Several may run at once: they share queues, and jobs that wait already are not queued twice.
"""

from __future__ import annotations

import logging
import operator
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.bridge.connection import Backoff, Link
from agent.bridge.dead_letters import DeadLetters
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap, Login, Outbox, Source, Wire
from agent.bridge.mqtt import MqttLink
from agent.bridge.registration import Prepared, Registration
from agent.bridge.stomp import StompLink
from agent.config.model import Mode, Offering
from agent.core.errors import ConfigError, WaldurError
from agent.core.events import ObjectType, QueueUnavailable
from agent.run import event_coverage
from agent.waldur.client import WaldurClient
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

TICK_S = 1.0
# Waldur takes a service without a heartbeat for idle after ten minutes.
SHOW_LIFE_S = 300.0
ASK_AGAIN = Backoff(base_s=2.0, cap_s=120.0)
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


@dataclass(frozen=True, slots=True)
class Parts:
    """What a bridge is made of. `clients` by offering uuid; `instance` tells this bridge apart from others."""

    offerings: Sequence[Offering]
    clients: dict[str, WaldurClient]
    program: Program
    outbox: Outbox
    state_dir: Path
    instance: str


@dataclass(slots=True)
class _Standing:
    """One offering: what is prepared, and when Waldur is asked next (monotonic seconds)."""

    registration: Registration
    # How many sources it may have, while nothing is prepared.
    expected: int
    prepared: Prepared = field(default_factory=Prepared)
    due_s: float = 0.0
    refused_s: float = 0.0
    failures: int = 0
    # Until Waldur was asked for what a broker does not have; how often that was so, and when it was last.
    repair_s: float = float("inf")
    losses: int = 0
    lost_s: float = float("-inf")
    is_asking: bool = False
    is_known: bool = False
    signed: frozenset[Mode] = frozenset()
    signed_s: float = float("-inf")
    told: str = ""


class Bridge:
    """`run` returns after `stop`."""

    def __init__(self, parts: Parts, *, tick_s: float = TICK_S) -> None:
        self._parts = parts
        self._tick_s = tick_s
        self._inbox = Inbox()
        self.dispatcher = Dispatcher(self._inbox, parts.outbox, DeadLetters(parts.state_dir))
        self._links: dict[Login, Link] = {}
        self._standings = {
            offering.uuid: _Standing(
                Registration(offering, parts.clients[offering.uuid], parts.program),
                expected=len(event_coverage.wanted_types(offering)),
            )
            for offering in parts.offerings
        }
        self._lock = threading.Lock()
        self._is_stopping = False
        # What is prepared is not what the links were told last.
        self._is_changed = True
        # What links listened to when signs were looked at last, and when that was.
        self._seen: list[frozenset[Source]] = []
        self._looked_s = float("-inf")
        # Set when something was prepared: then the next look is at once.
        self._news = threading.Event()

    def run(self) -> None:
        """Until `stop`; then what came is queued and acknowledged, within a bounded time."""
        self.dispatcher.start()
        while not self._is_stopping:
            self._ask()
            self._listen()
            self._sign()
            self._news.wait(self._tick_s)
            self._news.clear()
        self._end()

    def stop(self) -> None:
        """Seen at the next tick. A handler of signals may call it: it takes no lock, which `run` might hold."""
        self._is_stopping = True

    def listened_to(self, offering_uuid: str) -> frozenset[ObjectType]:
        """The types of an offering's messages that come in now."""
        with self._lock:
            sources = self._standings[offering_uuid].prepared.sources
            links = dict(self._links)
        heard = [s for s in sources if (link := links.get(s.login)) is not None and s in link.subscribed]
        return frozenset(kind for source in heard for kind in source.types)

    def _ask(self) -> None:
        """In threads that nobody waits for: a Waldur that is silent must not hold up the end."""
        now_s = time.monotonic()
        standings = sorted(self._standings.values(), key=lambda s: s.due_s)
        free = PREPARED_AT_ONCE - sum(standing.is_asking for standing in standings)
        due = [standing for standing in standings if not standing.is_asking and now_s >= standing.due_s]
        for standing in due[: max(0, free)]:
            standing.is_asking = True
            threading.Thread(target=self._prepare, args=(standing,), name="waldur", daemon=True).start()

    def _prepare(self, standing: _Standing) -> None:
        """Ask Waldur; whatever comes of it, there is a next time."""
        offering, now_s = standing.registration.offering, time.monotonic()
        wait_s = SHOW_LIFE_S
        standing.repair_s = float("inf")
        try:
            is_shown = standing.is_known and now_s < standing.refused_s and standing.registration.show_life()
            if not is_shown:
                self._take_over(standing, standing.registration.prepare())
            standing.failures = 0
        except ConfigError as error:
            wait_s = REFUSED_AGAIN_S
            _tell(standing, logging.WARNING, str(error))
        except WaldurError as error:
            wait_s = ASK_AGAIN.wait_s(standing.failures, 0.5)
            standing.failures += 1
            level = logging.WARNING if error.retryable else logging.ERROR
            _tell(standing, level, f"offering {offering.name}: no events yet: {error}")
        except Exception:  # as in the message loop: one offering must not end the others
            wait_s = ASK_AGAIN.cap_s
            log.exception("a fault of the bridge itself, with offering %s", offering.name)
        finally:
            with self._lock:
                standing.due_s = min(time.monotonic() + wait_s, standing.repair_s)
                standing.is_asking = False
            self._news.set()

    def _take_over(self, standing: _Standing, prepared: Prepared) -> None:
        offering = standing.registration.offering
        with self._lock:
            standing.prepared = prepared
            self._is_changed = True
            standing.is_known = True
            standing.refused_s = time.monotonic() + REFUSED_AGAIN_S if prepared.refused else float("inf")
        if prepared.is_narrowed:
            self._inbox.put_gap(Gap(offering.uuid, "the queue had fewer types for a while"))
        words = ", ".join(f"{kind} ({words})" for kind, words in prepared.refused.items())
        kinds = sorted({kind for source in prepared.sources for kind in source.types})
        _tell(
            standing,
            logging.INFO,
            f"offering {offering.name}: events {', '.join(kinds) or 'of no kind'}"
            + (f"; refused: {words}" if words else ""),
        )

    def _listen(self) -> None:
        """A link for each login, listening to all that is prepared for it."""
        if not self._is_changed and all(link.is_alive for link in self._links.values()):
            return
        self._is_changed = False
        with self._lock:
            wanted: dict[Login, set[Source]] = {}
            for standing in self._standings.values():
                for source in standing.prepared.sources:
                    wanted.setdefault(source.login, set()).add(source)
        in_all = sum(len(s.prepared.sources) or s.expected for s in self._standings.values())
        for login, sources in wanted.items():
            link = self._links.get(login)
            if link is None or not link.is_alive:
                link = self._begin(login)
            link.sources_in_all = in_all
            link.want(sources)
        for login in self._links.keys() - wanted.keys():
            with self._lock:
                link = self._links.pop(login)
            link.close()

    def _begin(self, login: Login) -> Link:
        link: Link
        if login.address.wire is Wire.STOMP:
            link = StompLink(login, self._inbox, on_lost=self._lost, on_refused=self._refused)
        else:
            link = MqttLink(
                login,
                self._inbox,
                on_lost=self._lost,
                on_refused=self._refused,
                instance=self._parts.instance,
            )
        with self._lock:
            self._links[login] = link
        link.start()
        return link

    def _lost(self, sources: Iterable[Source]) -> None:
        """Nobody listens to these until Waldur has made them again: the others of the same login go on."""
        gone = frozenset(sources)
        now_s = time.monotonic()
        for standing in self._of(gone):
            with self._lock:
                left = tuple(s for s in standing.prepared.sources if s not in gone)
                standing.prepared = replace(standing.prepared, sources=left)
                standing.losses = standing.losses + 1 if now_s - standing.lost_s < LOST_AGAIN_S else 1
                standing.lost_s = now_s
                self._is_changed = True
            self._repair(standing, max(REPAIR_S, ASK_AGAIN.wait_s(standing.losses, 0.5)))

    def _refused(self, sources: Iterable[Source]) -> None:
        """Waldur is asked to make the login again, soon, but not at every refusal."""
        for standing in self._of(sources):
            self._repair(standing, REPAIR_S)

    def _of(self, sources: Iterable[Source]) -> list[_Standing]:
        return [self._standings[uuid] for uuid in {source.offering_uuid for source in sources}]

    def _repair(self, standing: _Standing, wait_s: float) -> None:
        with self._lock:
            standing.is_known = False
            standing.repair_s = min(standing.repair_s, time.monotonic() + wait_s)
            standing.due_s = min(standing.due_s, standing.repair_s)

    def _sign(self) -> None:
        """Say, now and then and when it has changed, for which offerings and modes events come in."""
        now_s, seen = time.monotonic(), [link.subscribed for link in self._links.values()]
        is_same = len(seen) == len(self._seen) and all(map(operator.is_, seen, self._seen))
        if is_same and now_s - self._looked_s < event_coverage.HEARTBEAT_S / 3:
            return
        self._seen, self._looked_s = seen, now_s
        for uuid, standing in self._standings.items():
            modes = event_coverage.covered(standing.registration.offering, self.listened_to(uuid))
            is_old = now_s - standing.signed_s >= event_coverage.HEARTBEAT_S
            if not modes or not (is_old or modes - standing.signed):
                continue
            try:
                self._parts.outbox.send_heartbeat(uuid, modes)
            except QueueUnavailable as error:
                log.debug("no heartbeat: %s", error)
                return
            standing.signed, standing.signed_s = modes, now_s

    def _end(self) -> None:
        """Nothing new is taken; what came is queued; then the connections end."""
        links = list(self._links.values())
        for link in links:
            link.stop_receiving()
        if not self.dispatcher.drain(DRAIN_S):
            log.warning("%d messages are left to the brokers", len(self._inbox))
        for link in links:
            link.close()
        end_s = time.monotonic() + CLOSE_S
        for link in links:
            link.join(end_s - time.monotonic())
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.dispatcher.counts.items()))
        log.info("the bridge ends: %s", counts or "nothing came")


def _tell(standing: _Standing, level: int, sentence: str) -> None:
    """Once, until there is something else to say."""
    if standing.told != sentence:
        standing.told = sentence
        log.log(level, "%s", sentence)
