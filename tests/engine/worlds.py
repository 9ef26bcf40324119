# SPDX-License-Identifier: MIT
"""Worlds that are had again as often as a test needs them, and what their site remembers."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.config.model import Mode
from agent.core.policy import Budget, Charge, Cost
from agent.run.site import ProcessCache, Site
from agent.state import charges
from agent.state.held_plans import HeldPlans, HeldRow
from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world.table import Table
from tests.engine import kills
from tests.scale import steps

PLACES_AT_MOST = 200


class Moment:
    """A simulated Waldur, a cluster in memory and a state_dir as they are now. `beside`: lets all else be as it was."""

    def __init__(
        self, waldur: SimulatedWaldur, site: Site, folder: Path, *, beside: Callable[[], None] = lambda: None
    ) -> None:
        assert isinstance(site.backend, MemoryBackend)
        site.backend.outage = kills.in_memory
        site.backend.applied.clear()
        self._waldur, self._site, self._backend, self._folder = waldur, site, site.backend, folder
        self._beside = beside
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
        self._beside()
        return restarted(replace(self._site, state_dir=state_dir))


def killed_everywhere(
    moment: Moment,
    killed: Callable[[Site], object],
    then: Callable[[Site, str], object],
    *,
    start: int = 1,
    stride: int = 3,
) -> int:
    """The pass `killed` dies at each of its places, or at some; `then` is what comes after, with the place.
    Returns how many places the pass has.
    """
    for step in steps(PLACES_AT_MOST, start=start, stride=stride):
        site = moment.again()
        with kills.before(step, site.state_dir) as kill:
            killed(site)
        then(site, str(kill))
        if not kill.struck:
            return len(kill.places)
    raise AssertionError("the pass never ended")


def _tables(waldur: SimulatedWaldur) -> dict[str, Table[object]]:
    found = {name: value for name, value in vars(waldur.store).items() if isinstance(value, Table)}
    return copy.deepcopy(found)


def restarted(site: Site) -> Site:
    """The site as a process that has just started knows it; nothing is sent twice by itself."""
    client = WaldurClient(
        site.offering.access,
        user_agent="waldur-site-agent-test",
        offering_uuid=site.offering.uuid,
        attempts=1,
    )
    return replace(site, client=client, cache=ProcessCache())


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


def held(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> HeldPlans:
    return HeldPlans(site.state_dir, site.offering, mode)


def waiting(site: Site, mode: str = Mode.MEMBERSHIP_SYNC) -> list[HeldRow]:
    return held(site, mode).waiting()


def approve(site: Site, mode: str = Mode.MEMBERSHIP_SYNC, *, hours: float = 24) -> None:
    """All that waits."""
    for plan in waiting(site, mode):
        held(site, mode).approvals.approve(
            plan.id, expires=datetime.now(UTC) + timedelta(hours=hours), by="test"
        )


def charged(site: Site) -> set[Charge]:
    """What people have borne within a day without an approval."""
    return set(charges.history(site.state_dir, site.backend.cluster, datetime.now(UTC)).day)
