# SPDX-License-Identifier: MIT
"""The bridge of all offerings with events: prepares them in Waldur, keeps a link for each login, and says for which
offerings it listens. Several may run at once: they share queues, and jobs that wait already are not queued twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent.bridge.dead_letters import DeadLetters
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.bridge.link import Backoff, Link
from agent.bridge.model import Login, Outbox, Source, Wire
from agent.bridge.mqtt import MqttLink
from agent.bridge.registration import Prepared, Registration
from agent.bridge.stomp import StompLink
from agent.config.model import Mode, Offering
from agent.core.errors import ConfigError, WaldurError
from agent.core.events import ObjectType, QueueUnavailable
from agent.run import signs_of_life
from agent.waldur.client import WaldurClient
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

TICK_S = 1.0
# Waldur takes a service without a sign for idle after ten minutes.
SHOW_LIFE_S = 300.0
ASK_AGAIN = Backoff(base_s=2.0, cap_s=120.0)
# After a broker refused us or lost a queue, Waldur is not asked more often than this.
REPAIR_S = 10.0
# Types that a server refused, and servers without events, are asked again after this.
REFUSED_AGAIN_S = 3600.0
DRAIN_S = 10.0
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
    prepared: Prepared = field(default_factory=Prepared)
    due_s: float = 0.0
    refused_s: float = 0.0
    failures: int = 0
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
            offering.uuid: _Standing(Registration(offering, parts.clients[offering.uuid], parts.program))
            for offering in parts.offerings
        }
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        # Set when something was prepared, and at the end: then the next look is at once.
        self._news = threading.Event()

    def run(self) -> None:
        """Until `stop`; then what came is queued and acknowledged, within a bounded time."""
        self.dispatcher.start()
        with ThreadPoolExecutor(PREPARED_AT_ONCE, thread_name_prefix="waldur") as pool:
            while not self._stopping.is_set():
                self._ask(pool)
                self._listen()
                self._sign()
                self._news.wait(self._tick_s)
                self._news.clear()
            pool.shutdown(wait=False, cancel_futures=True)
            self._end()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def listened_to(self, offering_uuid: str) -> frozenset[ObjectType]:
        """The types of an offering's messages that come in now."""
        with self._lock:
            sources = self._standings[offering_uuid].prepared.sources
            links = dict(self._links)
        heard = [s for s in sources if (link := links.get(s.login)) is not None and s in link.subscribed]
        return frozenset(kind for source in heard for kind in source.types)

    def _ask(self, pool: ThreadPoolExecutor) -> None:
        now_s = time.monotonic()
        for standing in self._standings.values():
            if not standing.is_asking and now_s >= standing.due_s:
                standing.is_asking = True
                pool.submit(self._prepare, standing)

    def _prepare(self, standing: _Standing) -> None:
        """Ask Waldur; whatever comes of it, there is a next time."""
        offering, now_s = standing.registration.offering, time.monotonic()
        wait_s = SHOW_LIFE_S
        try:
            if standing.is_known and now_s < standing.refused_s:
                standing.registration.show_life()
            else:
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
            standing.due_s = time.monotonic() + wait_s
            standing.is_asking = False
            self._news.set()

    def _take_over(self, standing: _Standing, prepared: Prepared) -> None:
        offering = standing.registration.offering
        with self._lock:
            standing.prepared = prepared
            standing.is_known = True
            standing.refused_s = time.monotonic() + REFUSED_AGAIN_S if prepared.refused else float("inf")
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
        with self._lock:
            wanted: dict[Login, set[Source]] = {}
            for standing in self._standings.values():
                for source in standing.prepared.sources:
                    wanted.setdefault(source.login, set()).add(source)
        in_all = sum(map(len, wanted.values()))
        for login, sources in wanted.items():
            link = self._links.get(login) or self._begin(login)
            link.sources_in_all = in_all
            link.want(sources)
        for login in self._links.keys() - wanted.keys():
            self._links.pop(login).close()

    def _begin(self, login: Login) -> Link:
        link: Link
        if login.address.wire is Wire.STOMP:
            link = StompLink(login, self._inbox, on_lost=self._lost)
        else:
            link = MqttLink(login, self._inbox, on_lost=self._lost, instance=self._parts.instance)
        with self._lock:
            self._links[login] = link
        link.start()
        return link

    def _lost(self, sources: Iterable[Source]) -> None:
        """Waldur is asked to make these again, soon, but not at every refusal."""
        for offering_uuid in {source.offering_uuid for source in sources}:
            standing = self._standings[offering_uuid]
            with self._lock:
                standing.is_known = False
                standing.due_s = min(standing.due_s, time.monotonic() + REPAIR_S)

    def _sign(self) -> None:
        """Say, now and then and when it has changed, for which offerings and modes events come in."""
        now_s = time.monotonic()
        for uuid, standing in self._standings.items():
            modes = signs_of_life.covered(standing.registration.offering, self.listened_to(uuid))
            is_old = now_s - standing.signed_s >= signs_of_life.RENEW_S
            if not modes or not (is_old or modes - standing.signed):
                continue
            try:
                self._parts.outbox.renew(uuid, modes)
            except QueueUnavailable as error:
                log.debug("no sign of life: %s", error)
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
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.dispatcher.counts.items()))
        log.info("the bridge ends: %s", counts or "nothing came")


def _tell(standing: _Standing, level: int, sentence: str) -> None:
    """Once, until there is something else to say."""
    if standing.told != sentence:
        standing.told = sentence
        log.log(level, "%s", sentence)
