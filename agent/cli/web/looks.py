# SPDX-License-Identifier: MIT
"""What only Waldur or the cluster knows: a worker is asked, and the page shows what it left in the state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from tornado.web import HTTPError

from agent.cli import full_passes
from agent.cli.web.acts import Act
from agent.cli.web.handler import UUID, Console
from agent.config.model import Mode, Offering
from agent.core.overview import Look
from agent.state import overview
from agent.state.hints import LOOKS, SEEN_ALLOCATIONS, SEEN_PEOPLE, Hints
from agent.state.overview import Seen

V = TypeVar("V")

# A worker that has not answered by then is not waited for.
WAITS = timedelta(minutes=5)
# What is younger is not asked for again.
FRESH = timedelta(seconds=5)
# Looks cost commands of the cluster: so many may wait for workers, of all people together.
WAITING_AT_MOST = 20
# One that nobody has answered by then does not count.
COUNTED = timedelta(hours=1)
ASKED_AT_MOST = 1000


@dataclass(frozen=True, slots=True)
class Asked(Generic[V]):
    """What was found out about something, and whether a worker is asked for it."""

    found: Seen[V] | None
    since: datetime | None

    @property
    def is_waiting(self) -> bool:
        since = self.since
        if since is None or datetime.now(UTC) - since > WAITS:
            return False
        return self.found is None or self.found.changed < since


def asked(console: Console, kind: Hints[V], offering_uuid: str, key: str) -> Asked[V]:
    """Return what is known about something. Raises StateError."""
    found = overview.one(console.settings.state_dir, kind, offering_uuid, key)
    return Asked(found, console.asked.get((kind, offering_uuid, key)))


def ask(console: Console, hints: Hints[Any], key: str, kind: str, offering: Offering, *subject: str) -> None:
    """Ask a worker, unless one is asked or has just answered. Raises HTTPError where too many looks wait, and
    SiteAgentError where the broker is away.
    """
    now, about = datetime.now(UTC), asked(console, hints, offering.uuid, key)
    if about.is_waiting or (about.found and now - about.found.changed < FRESH):
        return
    if _count_waiting(console, now) >= WAITING_AT_MOST:
        raise HTTPError(
            HTTPStatus.TOO_MANY_REQUESTS,
            f"{WAITING_AT_MOST} looks wait for workers already: try again when some are answered",
        )
    full_passes.look(console.settings, kind, offering, *subject)
    while len(console.asked) >= ASKED_AT_MOST:
        del console.asked[next(iter(console.asked))]
    console.asked[hints, offering.uuid, key] = now


def _count_waiting(console: Console, now: datetime) -> int:
    """Return how many looks no worker has answered; those that are answered are forgotten."""
    count = 0
    for which, since in list(console.asked.items()):
        if now - since < COUNTED:
            found = asked(console, *which).found
            if found and found.changed >= since:
                del console.asked[which]
            else:
                count += 1
    return count


class LookHandler(Act):
    """A page about something that a worker looks at, when somebody asks for it: a viewer may."""

    kind: str
    mode = Mode.MEMBERSHIP_SYNC

    def subject(self, offering: Offering, *parts: str) -> tuple[str, str, tuple[str, ...]]:
        """Return the title of the page, where it leads back to, and what the task is about. Raises HTTPError."""
        raise NotImplementedError

    def _key(self, subject: tuple[str, ...]) -> str:
        """Return by which key workers leave what they find out about a subject."""
        return f"{self.kind}:{':'.join(subject)}"

    async def get(self, offering_uuid: str, *parts: str) -> None:
        def work() -> tuple[str, str, Asked[Look]]:
            title, back, subject = self.subject(self.offering(offering_uuid), *parts)
            return title, back, asked(self.console, LOOKS, offering_uuid, self._key(subject))

        title, back, look = await self.console.do(work)
        self.show("console_look", title=title, back=back, look=look, path=self.request.path)

    async def post(self, offering_uuid: str, *parts: str) -> None:
        def work() -> None:
            offering = self.offering(offering_uuid)
            _, _, subject = self.subject(offering, *parts)
            ask(self.console, LOOKS, self._key(subject), self.kind, offering, *subject)

        await self.console.act(work)
        self.done(self.request.path)


class Account(LookHandler):
    kind = "account"

    def subject(self, offering: Offering, *parts: str) -> tuple[str, str, tuple[str, ...]]:
        (resource_uuid,) = parts
        seen = _one(self.console, SEEN_ALLOCATIONS, offering, resource_uuid)
        return f"{seen.value.name}: account and Waldur", f"/allocation/{offering.uuid}/{resource_uuid}", parts


class Person(LookHandler):
    kind = "person"

    def subject(self, offering: Offering, *parts: str) -> tuple[str, str, tuple[str, ...]]:
        resource_uuid, key = parts
        seen = _one(self.console, SEEN_ALLOCATIONS, offering, resource_uuid)
        person = _one(self.console, SEEN_PEOPLE, offering, key).value
        title = f"{person.name or person.username} and {seen.value.name}"
        return title, f"/person/{offering.uuid}/{quote(key)}", (resource_uuid, person.uuid)


class Plan(LookHandler):
    kind = "plan"

    def subject(self, offering: Offering, *parts: str) -> tuple[str, str, tuple[str, ...]]:
        (mode,) = parts
        if not offering.backend_of(Mode(mode)):
            raise HTTPError(HTTPStatus.NOT_FOUND, f"{offering.name} has no backend for {mode}")
        return f"What a pass of {mode} would do now", f"/offering/{offering.uuid}", parts


def _one(console: Console, kind: Hints[V], offering: Offering, key: str) -> Seen[V]:
    found = overview.one(console.settings.state_dir, kind, offering.uuid, key)
    if found is None:
        raise HTTPError(HTTPStatus.NOT_FOUND, "no pass over members has seen this, or it has ended")
    return found


ROUTES = [
    (f"/look/account/{UUID}/{UUID}", Account),
    (f"/look/person/{UUID}/{UUID}/([^/]+)", Person),
    (f"/look/plan/{UUID}/({'|'.join(Mode)})", Plan),
]
