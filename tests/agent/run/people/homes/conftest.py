# SPDX-License-Identifier: MIT
"""A site whose head node is of stand-ins. Nothing here speaks to Waldur or to a cluster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode, Offering
from agent.core.actions import Action
from agent.core.model import Snapshot
from agent.core.plans import Plan
from agent.plan.groups import DesiredGroups
from agent.run import engine
from agent.run import site as sites
from agent.run.handed_on import AccountsInStep
from agent.run.people import homes
from agent.run.people.homes import HomeFacts, Homes, HomesReport, PlannedHomes
from agent.run.site import Site
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.store import Store
from backends.storage.homes import HeadNode
from backends.testing.memory import MemoryBackend
from tests.agent.config.samples import OFFERING, changed
from tests.agent.config.samples import Site as Configuration
from tests.backends.storage.world import World

XFS = {"provider": "xfs", "mount_point": "/xfs", "block_hardlimit": "10g"}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]


def site_of(offering: Offering, state_dir: Path) -> Site:
    """The offering's site; its cluster is in memory."""
    return Site(offering, sites.client(offering, "test"), MemoryBackend(), state_dir)


def planned(site: Site, users: Collection[str], host: HeadNode, **options: Any) -> PlannedHomes:
    """What a pass that does not apply plans for these users."""
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, applies=False) as run:
        run.leave(AccountsInStep(DesiredGroups({}), frozenset(users)))
        work = engine.reconcile(run, Homes(run, host=host, **options))
    assert run.report.error is None
    return work.plan if work else PlannedHomes(HomeFacts((), {}), {}, Snapshot(site.backend.cluster))


class HomeSite:
    """`provision` and `plan` as a pass calls them, for an offering with these settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World(folder / "node")
        self.state = folder / "state"
        self.configure()

    def configure(
        self,
        *,
        quota: Mapping[str, Any] | None = None,
        policy: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        tree = {**settings, **({"homedir_quota": dict(quota)} if quota else {})}
        offering = {**changed(OFFERING, "backend_settings", tree), "policy": dict(policy or {})}
        loaded = Configuration(self.folder).load({"offerings": [offering]})
        assert loaded.settings is not None
        (self.offering,) = loaded.settings.offerings

    def provision(
        self,
        *users: str,
        leave_after_s: float = 600.0,
        budget_s: float = 600.0,
        is_whole: bool = False,
        shown: Collection[Action] | None = None,
        **options: Any,
    ) -> HomesReport:
        host = self.world.head_node(leave_after_s=leave_after_s)
        with engine.passing(self.site(), Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
            run.shown = None if shown is None else frozenset(shown)
            run.leave(AccountsInStep(DesiredGroups({}), frozenset(users), is_whole))
            mode = Homes(run, host=host, budget_s=budget_s, **options)
            engine.run_optional(run, mode)
        return mode.report

    def plan(self, *users: str) -> Plan:
        return Plan.of(planned(self.site(), users, self.world.head_node()).actions)

    def waiting(self) -> list[HeldRow]:
        """Plans for homes that wait for a person."""
        return HeldPlans(self.state, self.offering, homes.KEY).waiting()

    def site(self) -> Site:
        return site_of(self.offering, self.state)

    @property
    def memory(self) -> Path:
        return Store(self.state).path


@pytest.fixture
def homes_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HomeSite]:
    site = HomeSite(tmp_path)
    monkeypatch.setenv("PATH", f"{site.world.bin}:{os.environ['PATH']}")
    yield site
    site.world.let_go()
