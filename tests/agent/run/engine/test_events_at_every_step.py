# SPDX-License-Identifier: MIT
"""A fault at every single step of periodic limits, imports, keys and the usage of keys: the next attempts end right,
and do nothing twice.

The cluster is in memory here. An attempt is what the task does; after a kill its message comes again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

import pytest

from agent.core.errors import SiteAgentError
from agent.core.model import Account
from agent.core.periodic import LimitType
from agent.run import passes
from agent.run.imports import mode as imports
from agent.run.site import ProcessCache
from backends.testing.keys import KeyMemoryBackend
from backends.testing.memory import MemoryBackend
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import ApiKey
from simulator.world.seed import Scenario
from tests.agent.run.periodic.periodic_world import PeriodicWorld
from tests.scale import steps
from tests.simulator.caller import Caller
from tests.step_faults import FAULTS, MortalClient, killed_at
from tests.world import approve_all, site_in_memory

pytestmark = [pytest.mark.safety, pytest.mark.events]

SCENARIO = Scenario(allocations_per_project=1, backend_prefix="a_")
STEPS_AT_MOST = 60
LOWER = {"fairshare": 7, "grp_tres_mins": {"cpu": 600}, "reset_raw_usage": True}
ATTEMPTS = 4


class AtOnce:
    """A message that is carried out when it comes."""

    age = "8.0"
    # A reset whose end was not seen is repeated within minutes: what was used since then is next to nothing.
    may_repeat = 0
    used = 10

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.world = PeriodicWorld(waldur, folder)
        self.backend, self.client = self.world.cluster, self.world.client
        self.world.account_settings.limits = {LimitType.GRP_TRES_MINS: {"cpu": 1000}}
        self.world.cluster.uses(cpu=self.used)
        self.document = self.world.message(LOWER)

    def attempt(self) -> bool:
        """Whether it needs no other one."""
        return self.world.received(self.document) is None

    def wrong(self) -> list[str]:
        settings, found = self.world.account_settings, []
        if (settings.share, settings.limits) != (7, {LimitType.GRP_TRES_MINS: {"cpu": 600}}):
            found.append(f"not in force: {settings.share} {settings.limits}")
        if not 1 <= settings.resets <= 1 + self.may_repeat:
            found.append(f"{settings.resets} resets")
        if self.world.parked() or self.world.waiting():
            found.append(f"it still waits: {self.world.parked()} {self.world.waiting()}")
        if (True, "") not in {line[:2] for line in self.world.reported()}:
            found.append(f"reported: {self.world.reported()}")
        return found


class Held(AtOnce):
    """A message that is held when it comes, and is not lost before a person approves it."""

    used = 800

    def wrong(self) -> list[str]:
        settings, waiting, found = self.world.account_settings, self.world.waiting(), []
        if (settings.share, settings.limits, settings.resets) != (
            None,
            {LimitType.GRP_TRES_MINS: {"cpu": 1000}},
            0,
        ):
            found.append(f"changed: {settings.share} {settings.limits} {settings.resets}")
        if [[*parked.plans] for parked in self.world.parked()] != [waiting] or len(waiting) != 1:
            found.append(f"it does not wait: {self.world.parked()} {waiting}")
        if {success for success, *_ in self.world.reported()} != {False}:
            found.append(f"reported: {self.world.reported()}")
        return found


class Approved(AtOnce):
    """A message that was held, and that a person has approved: it goes on with a pass over orders."""

    used = 800

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.world.received(self.document)
        approve_all(self.world.site)
        waldur.requests.reset()

    def attempt(self) -> bool:
        self.world.order_pass()
        return not self.world.parked()


class Import:
    """A request for import; three accounts can be offered."""

    age = "8.0"
    may_repeat = 0

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.backend = MemoryBackend()
        self.site = site_in_memory(waldur, folder, self.backend, MortalClient, resource_import_enabled=True)
        self.client = self.site.client
        parent = f"p_{waldur.store.projects[waldur.seed.project_uuids[0]].slug}"
        accounts = {name: Account(name, parent) for name in ("a_x", "a_y", "a_z")}
        state = self.backend.state
        self.backend.state = replace(
            state, accounts={**state.accounts, parent: Account(parent, "root"), **accounts}
        )
        body = {"offering": waldur.seed.offering_uuid}
        self.request = Caller(waldur, "agent").post("backend-resource-requests/", body).json()["uuid"]
        waldur.requests.reset()

    def attempt(self) -> bool:
        try:
            imports.run(self.site, self.request)
        except SiteAgentError as error:
            if not error.retryable:
                raise
            return False
        return True

    def wrong(self) -> list[str]:
        found = []
        offered = sorted(row.backend_id for row in self.waldur.store.backend_resources)
        if offered != ["a_x", "a_y", "a_z"]:
            found.append(f"offered: {offered}")
        row = self.waldur.store.import_requests[self.request]
        if (row.state, row.error_message) != ("Done", ""):
            found.append(f"the request is {row.state}: {row.error_message}")
        return found


class OfKeys:
    """A resource on a cluster that makes keys."""

    age = "8.1"
    may_repeat = 0

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.rows = waldur.store.api_keys
        self.backend = KeyMemoryBackend()
        self.site = site_in_memory(waldur, folder, self.backend, MortalClient, reporting_backend="slurm")
        self.client = self.site.client
        self.resource = next(iter(waldur.store.resources))
        self.account = str(self.resource.backend_id).lower()
        state = self.backend.state
        accounts = {**state.accounts, self.account: Account(self.account, "root")}
        self.backend.state = replace(state, accounts=accounts)


class KeysUsed(OfKeys):
    """Two keys were used in two months, of which Waldur has old figures of one; a report tells the rest."""

    USED = MappingProxyType(
        {"2026-02": {"one": {"cpu": 60}}, "2026-03": {"one": {"cpu": 120}, "two": {"mem": 61440}}}
    )

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        for number, name in enumerate(("one", "two")):
            self.rows.add(ApiKey(uuid=f"{number:032x}", resource_uuid=self.resource.uuid, client_id=name))
        for month, used in self.USED.items():
            self.backend.keys.used[month][self.account] = used
        self.rows["0" * 32].usages["2026-02-01"] = {"cpu": "0.50", "mem": "0.00"}
        waldur.requests.reset()

    def attempt(self) -> bool:
        site = replace(self.site, cache=ProcessCache())
        report = passes.report_usage(site, clock=lambda: datetime(2026, 3, 3, 12, tzinfo=UTC))
        return report.error is None and report.later is None and not report.failed

    def wrong(self) -> list[str]:
        shown = {row.client_id: row.usages for row in self.rows}
        one = {"2026-02-01": {"cpu": "1.00", "mem": "0.00"}, "2026-03-01": {"cpu": "2.00", "mem": "0.00"}}
        wanted = {"one": one, "two": {"2026-03-01": {"cpu": "0.00", "mem": "1.00"}}}
        return [] if shown == wanted else [f"used: {shown}"]


class Keys(OfKeys):
    """Keys of a resource of which Waldur wants something, of every kind; a pass over orders finds them."""

    # What Waldur wants of a key, with the key's state before and in the end.
    WANTED = MappingProxyType({
        "create": ("Creating", "OK"),
        "rotate": ("Updating", "OK"),
        "pause": ("Updating", "Paused"),
        "resume": ("Updating", "OK"),
        "update": ("Updating", "Erred"),
        "delete": ("Deleting", "Deleted"),
    })  # fmt: skip

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.uuids = {action: f"{number:032x}" for number, action in enumerate(self.WANTED)}
        self.before: dict[str, str] = {}
        for action, uuid in self.uuids.items():
            before, _ = self.WANTED[action]
            row = ApiKey(
                uuid=uuid, resource_uuid=self.resource.uuid, client_id="", state=before, pending_action=action
            )
            if action != "create":
                row.client_id = f"key-{action}"
                made = self.backend.keys.issue(self.account, row.client_id)
                self.before[action] = row.api_key = made.secret.reveal()
            self.rows.add(row)
        self.backend.keys.set_paused(self.account, "key-resume", True)
        waldur.requests.reset()

    def attempt(self) -> bool:
        report = passes.process_orders(self.site)
        return report.error is None and report.later is None and not report.failed

    def opens(self, action: str, secret: str) -> bool:
        row = self.rows[self.uuids[action]]
        return self.backend.keys.opens(self.account, row.client_id, secret)

    def wrong(self) -> list[str]:
        found = []
        for action, (_, wanted) in self.WANTED.items():
            row = self.rows[self.uuids[action]]
            if row.state != wanted:
                found.append(f"{action}: {row.state} {row.error_message}")
            # What Waldur shows is what gives access, where anything does.
            if self.opens(action, row.api_key) != (wanted not in ("Paused", "Deleted")):
                found.append(f"{action}: the key that Waldur has")
        kept = {action for action, secret in self.before.items() if self.opens(action, secret)}
        if kept != {"resume", "update"}:
            found.append(f"those of before that give access: {kept}")
        names = {self.uuids["create"], *(f"key-{each}" for each in self.before if each != "delete")}
        if self.backend.keys.digests.keys() != {(self.account, name) for name in names}:
            found.append(f"keys: {sorted(self.backend.keys.digests)}")
        return found


World = AtOnce | Import | Keys | KeysUsed
MAKERS: dict[str, type[World]] = {
    "at once": AtOnce,
    "held": Held,
    "approved": Approved,
    "import": Import,
    "keys": Keys,
    "usage of keys": KeysUsed,
}


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> type[World]:
    return MAKERS[request.param]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new one for each world: what is remembered of one policy is not for another."""
    return (tmp_path_factory.mktemp("steps") for _ in iter(int, 1))


def finished(world: World) -> None:
    """The attempts that come after the fault."""
    assert any(world.attempt() for _ in range(ATTEMPTS))
    world.attempt()


def test_without_faults_one_attempt_does_it_all(make: type[World], folders: Iterator[Path]) -> None:
    with SimulatedWaldur(make.age, scenario=SCENARIO) as waldur:
        world = make(waldur, next(folders))
        assert world.attempt()
        assert world.wrong() == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_of_any_one_request_is_made_good(
    make: type[World], folders: Iterator[Path], fault: str
) -> None:
    struck_steps = 0
    for skip in steps(STEPS_AT_MOST, start=list(FAULTS).index(fault) % 3, stride=9):
        with SimulatedWaldur(make.age, scenario=SCENARIO) as waldur:
            world = make(waldur, next(folders))
            waldur.inject(Fault(skip=skip, times=1, **FAULTS[fault]))
            world.attempt()
            struck = waldur.requests.count() > skip
            waldur.faults.clear()
            finished(world)
            assert world.wrong() == [], f"request {skip}"
        if not struck:
            break
        struck_steps += 1
    assert 0 < struck_steps < STEPS_AT_MOST


@pytest.mark.parametrize("lasting", [False, True], ids=["once", "until the next attempt"])
def test_an_outage_of_the_cluster_at_any_step_is_made_good(
    make: type[World], folders: Iterator[Path], lasting: bool
) -> None:
    for step in steps(STEPS_AT_MOST, start=2 * lasting, stride=5):
        with SimulatedWaldur(make.age, scenario=SCENARIO) as waldur:
            world = make(waldur, next(folders))
            world.may_repeat = 1
            calls = 0

            def outage(_: str, step: int = step) -> bool:
                nonlocal calls
                calls += 1
                return calls > step if lasting else calls == step + 1

            world.backend.outage = outage
            world.attempt()
            struck = calls > step
            world.backend.outage = lambda _: False
            finished(world)
            assert world.wrong() == [], f"step {step}"
        if not struck:
            break
    assert step < STEPS_AT_MOST - 3


def test_a_kill_at_any_step_is_made_good(make: type[World], folders: Iterator[Path]) -> None:
    for step in steps(STEPS_AT_MOST, start=1, stride=7):
        with SimulatedWaldur(make.age, scenario=SCENARIO) as waldur:
            world = make(waldur, next(folders))
            world.may_repeat = 1
            killed = killed_at(step, world.client, world.backend, world.attempt)
            finished(world)
            assert world.wrong() == [], f"step {step}"
        if not killed:
            break
    assert 5 < step < STEPS_AT_MOST - 3
