# SPDX-License-Identifier: MIT
"""Worlds that are had again as often as a test needs them, and what their site remembers."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.core.policy import Budget, Charge, Cost
from agent.run import engine, passes
from agent.run.gate import Pass
from agent.run.results import PassReport
from agent.run.site import ProcessCache, Site
from agent.state import charges
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world.table import Table
from tests.agent.run.engine import kills
from tests.scale import FULL, steps
from tests.world import client_of

PLACES_AT_MOST = 200
# Programs that only read: what is asked of project quotas.
READING = ("lfs quota", "lfs project -d")


class Moment:
    """A simulated Waldur, a cluster in memory and a state_dir as they are now. `restore_rest`: restores what is outside
    of these.
    """

    def __init__(
        self,
        waldur: SimulatedWaldur,
        site: Site,
        folder: Path,
        *,
        restore_rest: Callable[[], None] = lambda: None,
    ) -> None:
        assert isinstance(site.backend, MemoryBackend)
        site.backend.outage = kills.in_memory
        site.backend.applied.clear()
        self._waldur, self._site, self._backend, self._folder = waldur, site, site.backend, folder
        self._restore_rest = restore_rest
        self._state = site.backend.state
        self._rows = _tables(waldur)
        self._kept = folder / "kept"
        self._times = 0
        site.state_dir.mkdir(exist_ok=True)
        shutil.copytree(site.state_dir, self._kept)

    def again(self) -> Site:
        """All of it as it was, and the site as a process that has just started knows it."""
        self._times += 1
        state_dir = self._folder / f"state-{self._times}"
        shutil.copytree(self._kept, state_dir)
        vars(self._waldur.store).update(copy.deepcopy(self._rows))
        self._backend.state = self._state
        self._backend.applied.clear()
        self._waldur.requests.reset()
        self._restore_rest()
        return restarted(replace(self._site, state_dir=state_dir))


class Again(Protocol):
    """A world that is had as it was, and the site of it."""

    def again(self) -> Site: ...


def killed_everywhere(
    moment: Again,
    killed: Callable[[Site], object],
    then: Callable[[Site, str], object],
    *,
    look: Callable[[Site], object] | None = None,
) -> int:
    """The pass `killed` dies at each of its places, in the short run at some of each kind; `then` is what comes after,
    with the place. Before that the world is looked at, with all lists of modes or in the way of `look`, and the pass
    ends undisturbed. Returns how many places it has.
    """
    (look or looks)(moment.again())
    places = dying_at(kills.NEVER, moment, killed, then).places
    assert len(places) < PLACES_AT_MOST, "the pass never ended"
    for step in range(1, len(places) + 1) if FULL else sorted(of_each_kind(places)):
        dying_at(step, moment, killed, then)
    return len(places)


def dying_at(
    step: int, moment: Again, killed: Callable[[Site], object], then: Callable[[Site, str], object]
) -> kills.Kill:
    site = moment.again()
    with kills.before(step, site.state_dir) as kill:
        killed(site)
    then(site, str(kill))
    return kill


def of_each_kind(places: Sequence[str]) -> Iterator[int]:
    """Yield some of the places, counted from one: of each kind (a transaction, `request POST`, `LDAP modify`) one, and
    every eighth after it. It begins with another one of each kind, and with other ones where the pass has changed.
    """
    kinds: dict[tuple[str, ...], list[int]] = {}
    for step, place in enumerate(places, 1):
        words = place.split()
        is_told_by_two = words[0] in ("LDAP", "program") or words[:2] in (
            ["request", "GET"],
            ["request", "POST"],
        )
        kinds.setdefault(tuple(words[: 1 + is_told_by_two]), []).append(step)
    for number, steps_of_kind in enumerate(kinds.values(), len(places)):
        yield from steps_of_kind[number % min(len(steps_of_kind), 8) :: 8]


def cut_off_everywhere(
    moment: Again, mode: Mode, goes_away: Callable[[], object], *, start: int = 0
) -> Iterator[tuple[Site, PassReport, str]]:
    """Yield passes in which something goes away between two modes, in the short run from `start` on between every third
    two, with their site and the place.
    """

    class Outage(engine.Mode[None, Any]):
        key = "outage"

        def observe(self) -> None:
            goes_away()

    modes = passes.LISTS[mode]
    for at in steps(len(modes), start=1 if FULL else 1 + start, stride=3):
        site = moment.again()
        with engine.passing(site, mode) as run:
            engine.walk(run, [*modes[:at], Outage, *modes[at:]])
        yield site, run.report, f"between {modes[at - 1].__name__} and {modes[at].__name__}"


def erred(waldur: SimulatedWaldur) -> set[str]:
    """The uuids of all resources, orders and offering users that are in error."""
    store = waldur.store
    rows = [*store.resources, *store.orders, *store.offering_users]
    return {row.uuid for row in rows if row.state.value.lower().startswith("err")}


def looks(site: Site) -> dict[Mode, Pass]:
    """Look at a site with each list of modes, and see that nothing is changed by it. Return the passes by mode, without
    those that this site cannot have.
    """
    assert isinstance(site.backend, MemoryBackend)
    site.backend.outage = kills.in_memory
    found = {}
    for mode in passes.LISTS:
        with unchanged(site, mode), suppress(SiteAgentError):
            found[mode] = passes.look(site, mode)
    return found


@contextmanager
def unchanged(site: Site, what: str) -> Iterator[None]:
    """See that the body changes nothing."""
    with kills.watching(site.state_dir, reading=READING) as watch:
        yield
    changes = watch.changes()
    assert changes == [], f"{what}: {changes}"


def _tables(waldur: SimulatedWaldur) -> dict[str, Table[object]]:
    found = {name: value for name, value in vars(waldur.store).items() if isinstance(value, Table)}
    return copy.deepcopy(found)


def restarted(site: Site) -> Site:
    """The site as a process that has just started knows it; nothing is sent twice by itself."""
    return replace(site, client=client_of(site.offering), cache=ProcessCache())


def with_room_for(site: Site, budgets: Mapping[Cost, int]) -> Site:
    """The site with budgets of so much in an hour and a day, and of nothing else."""
    exact = {cost: Budget(budgets.get(cost, 0), budgets.get(cost, 0)) for cost in Cost}
    rules = replace(
        site.offering.policy,
        budgets=exact,
        max_removed_members=exact[Cost.MEMBERS_REMOVED].hour,
        max_removed_accounts=exact[Cost.ACCOUNTS_EMPTIED].hour,
    )
    return replace(site, offering=replace(site.offering, policy=rules))


def charged(site: Site) -> set[Charge]:
    """What people have borne within a day without an approval."""
    return set(charges.history(site.state_dir, site.backend.cluster, datetime.now(UTC)).day)


def members_pass(site: Site) -> PassReport:
    report = passes.sync_members(site)
    assert (report.error, report.failed) == (None, False), report.as_json()
    return report
