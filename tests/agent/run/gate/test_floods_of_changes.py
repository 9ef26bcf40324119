# SPDX-License-Identifier: MIT
"""Changes that remove no member, and that limit all the same: more than their budget wait for a person, 5 do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.model import Account, MemberQos
from agent.core.policy import BUDGETS, Charge, Cost, PolicyMode
from agent.run import passes
from agent.run.keys import api_keys
from agent.state import charges, held_plans
from agent.state.store import Store
from backends.testing.keys import KeyMemoryBackend
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import ApiKey
from simulator.world.seed import Scenario
from tests.agent.run.gate.floods import HOW, WorldOf, reconciled, world_of
from tests.agent.run.periodic.periodic_world import PeriodicWorld
from tests.scale import FULL
from tests.world import World, approve, approve_all

__all__ = ["world_of"]

pytestmark = [pytest.mark.safety, pytest.mark.floods]

# The default of an hour in a full run.
HOUR = 50 if FULL else 10
SMALLER = (Cost.ACCOUNTS_DOWNSCALED, Cost.SHARES_LOWERED, Cost.USAGE_RESET, Cost.KEYS_ENDED)
POLICY: dict[str, Any] = {} if FULL else {"budgets": {cost.value: {"hour": HOUR} for cost in SMALLER}}
MANY, FEW = HOUR + 6, 5
QOS = {"qos_paused": "stop", "qos_downscaled": "slow", "qos_default": "normal"}
ENFORCED = {"qos_enforcement_enabled": True, "enforce_offering_qos": True}


def hour_passes(world: World) -> None:
    with Store(world.site.state_dir).write() as db:
        db.run("DELETE FROM charges")


# Downscaled ---------------------------------------------------------------------------------------


def slow(world: World) -> int:
    return sum(account.default_qos == "slow" for account in world.cluster.accounts.values())


def downscale(world: World, count: int = MANY, *, downscaled: bool = True) -> None:
    for uuid in world.waldur.seed.resource_uuids[:count]:
        world.change(uuid, downscaled=downscaled)


@HOW
def test_many_accounts_that_would_be_downscaled_wait_and_a_few_do_not(world_of: WorldOf, how: str) -> None:
    world = world_of(MANY, 1, backend=QOS, policy=POLICY)
    downscale(world, FEW)
    assert world.sync().held == ()
    assert slow(world) == FEW
    hour_passes(world)
    downscale(world)
    reports = reconciled(world, how)
    first = 0 if how == "in one pass" else HOUR
    assert slow(world) == FEW + first
    assert "would be downscaled" in reports[-1].held[0].reason
    (plan,) = world.sync().held
    assert {action.verb for action in plan.actions} == {"set QoS"}
    approve(world.site, Mode.MEMBERSHIP_SYNC, plan.id)
    assert world.sync().held == ()
    assert slow(world) == MANY


def test_from_a_pause_to_being_downscaled_nothing_is_lost(world_of: WorldOf) -> None:
    freely = {"budgets": {**POLICY.get("budgets", {}), "accounts_blocked": {"hour": MANY}}}
    world = world_of(MANY, 1, backend=QOS, policy=freely)
    for uuid in world.waldur.seed.resource_uuids:
        world.change(uuid, paused=True)
    assert world.sync().held == ()
    for uuid in world.waldur.seed.resource_uuids:
        world.change(uuid, paused=False, downscaled=True)
    assert world.sync().held == ()
    assert slow(world) == MANY


def test_a_switch_to_this_agent_changes_and_holds_nothing_of_accounts_that_are_downscaled(
    world_of: WorldOf,
) -> None:
    """Another agent has set the QoS of all of them."""
    world = world_of(MANY, 1, backend=QOS, policy=POLICY)
    downscale(world)
    accounts = {
        name: replace(a, qos=frozenset({"slow"}), default_qos="slow") if name.startswith("a_") else a
        for name, a in world.cluster.accounts.items()
    }
    world.backend.state = replace(world.cluster, accounts=accounts)
    assert (world.sync().held, world.backend.applied) == ((), [])


def test_a_careful_mode_downscales_nothing(world_of: WorldOf) -> None:
    world = world_of(1, 1, backend=QOS, policy={"mode": PolicyMode.UPSERT_ONLY.value})
    downscale(world)
    world.sync()
    assert slow(world) == 0
    downscale(world, downscaled=False)
    accounts = {
        name: replace(a, qos=frozenset({"slow"}), default_qos="slow")
        for name, a in world.cluster.accounts.items()
    }
    world.backend.state = replace(world.cluster, accounts=accounts)
    world.sync()
    assert slow(world) == len(accounts) - 1, "the way back is open"


# QoS of members -----------------------------------------------------------------------------------


@HOW
@pytest.mark.parametrize("qos", ["stop", "slow"])
def test_many_members_who_would_get_the_qos_of_a_pause_wait(world_of: WorldOf, how: str, qos: str) -> None:
    world = world_of(12, 5, age="8.1", backend={**QOS, **ENFORCED})
    normal = MemberQos(frozenset({"normal"}), "normal")
    world.backend.state = replace(world.cluster, member_qos=dict.fromkeys(world.cluster.associations, normal))
    world.waldur.store.offerings[world.waldur.seed.offering_uuid].qos = ["normal", "slow", "stop"]
    uuids = world.waldur.seed.resource_uuids

    def paused() -> int:
        return sum(own.default == qos for own in world.cluster.member_qos.values())

    world.change(uuids[0], attributes={"qos": qos})
    assert world.sync().held == ()
    assert paused() == FEW
    hour_passes(world)
    for uuid in uuids:
        world.change(uuid, attributes={"qos": qos})
    reports = reconciled(world, how)
    limit = BUDGETS[Cost.MEMBERS_PAUSED].hour
    assert paused() == FEW + (0 if how == "in one pass" else limit)
    (plan,) = reports[-1].held
    assert "would get the QoS of paused or downscaled accounts" in plan.reason
    hour_passes(world)


# Shares and raw usage -----------------------------------------------------------------------------


class ManyAccounts(PeriodicWorld):
    """The world of periodic limits with a resource and an account for each project."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder, **POLICY)
        self.named = {uuid: f"a_{number}" for number, uuid in enumerate(waldur.seed.resource_uuids)}
        for uuid, name in self.named.items():
            waldur.site.change("resources", uuid, backend_id=name)
        accounts = {name: Account(name, "root") for name in self.named.values()}
        used = {name: {"cpu": 0} for name in accounts}
        self.cluster.state = replace(
            self.cluster.state, accounts={**self.cluster.state.accounts, **accounts}, used=used
        )

    def send(self, settings: dict[str, Any], count: int = MANY, **more: Any) -> None:
        """A message of the policy for so many of the resources."""
        for uuid, name in list(self.named.items())[:count]:
            assert self.received(self.message(settings, resource_uuid=uuid, backend_id=name, **more)) is None

    def shares(self) -> list[int | None]:
        return [self.cluster.periodic.accounts[name].share for name in self.named.values()]

    def resets(self) -> int:
        return sum(self.cluster.periodic.accounts[name].resets for name in self.named.values())

    def reasons(self) -> list[str]:
        everywhere = held_plans.all_held(self.site.state_dir, [self.offering])
        return [plan.reason for held in everywhere for plan in held.waiting()]


@pytest.fixture
def periodic(tmp_path: Path) -> Iterator[ManyAccounts]:
    scenario = Scenario(projects_per_customer=MANY, members_per_project=1, allocations_per_project=1)
    with SimulatedWaldur("8.0", scenario=scenario) as waldur:
        yield ManyAccounts(waldur, tmp_path)


def test_many_shares_that_would_be_lowered_wait_and_a_few_do_not(periodic: ManyAccounts) -> None:
    periodic.cluster.periodic.accounts.update(
        {
            name: replace(periodic.cluster.periodic.accounts[name], share=100)
            for name in periodic.named.values()
        }
    )
    periodic.send({"fairshare": 7}, FEW)
    assert (periodic.shares().count(7), periodic.reasons()) == (FEW, [])
    periodic.send({"fairshare": 7})
    assert (periodic.shares().count(7), periodic.shares().count(100)) == (HOUR, MANY - HOUR)
    assert len(periodic.reasons()) == MANY - HOUR
    assert "the share of 1 account would be lowered" in periodic.reasons()[0]


def test_shares_that_grow_wait_for_no_approval(periodic: ManyAccounts) -> None:
    for name in periodic.named.values():
        periodic.cluster.periodic.accounts[name].share = 1
    periodic.send({"fairshare": 333})
    assert (periodic.shares().count(333), periodic.reasons()) == (MANY, [])


def test_a_share_of_its_own_instead_of_that_of_the_account_above_may_be_less(periodic: ManyAccounts) -> None:
    periodic.send({"fairshare": 1})
    assert periodic.shares().count(1) == HOUR


def test_many_resets_that_no_period_explains_wait_and_the_next_period_resets_all(
    periodic: ManyAccounts,
) -> None:
    reset = {"reset_raw_usage": True}
    periodic.send(reset, FEW)
    assert (periodic.resets(), periodic.reasons()) == (FEW, [])
    periodic.send(reset)
    assert periodic.resets() == HOUR
    assert len(periodic.reasons()) == MANY - HOUR
    assert "the counted usage of 1 account would be forgotten" in periodic.reasons()[0]
    periodic.send(reset, HOUR, timestamp="2026-02-01T00:10:02")
    assert periodic.resets() == 2 * HOUR, "what is due in each period is no flood"
    before = len(spent(periodic))
    periodic.send(reset, HOUR, timestamp="2026-02-02T00:10:02")
    assert (periodic.resets(), len(spent(periodic))) == (2 * HOUR, before)


def spent(world: PeriodicWorld) -> frozenset[Charge]:
    return charges.history(world.site.state_dir, world.cluster.cluster, datetime.now(UTC)).hour


# Keys ---------------------------------------------------------------------------------------------


class KeyWorld:
    """One resource with many keys, in Waldur and on the cluster."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        world = World(waldur, folder, order_processing_backend="slurm", policy=POLICY)
        world.fill()
        self.backend = KeyMemoryBackend()
        self.backend.state = world.cluster
        self.site = replace(world.site, backend=self.backend)
        self.waldur = waldur
        (resource,) = waldur.store.resources
        account = resource.backend_id.lower()
        self.secrets = {}
        for number in range(MANY):
            name = f"key{number}"
            waldur.store.api_keys.add(
                ApiKey(uuid=f"{number:032x}", resource_uuid=resource.uuid, client_id=name)
            )
            self.secrets[account, name] = self.backend.keys.issue(account, name).secret.reveal()

    def ask(self, action: str, count: int = MANY) -> list[str]:
        """Let Waldur ask this of so many keys. Return their uuids."""
        asked = list(self.waldur.store.api_keys)[:count]
        for key in asked:
            key.state, key.pending_action = "Deleting" if action == "delete" else "Updating", action
        return [key.uuid for key in asked]

    def usable(self) -> int:
        """How many keys give access with the secret that they had."""
        return sum(self.backend.keys.opens(*place, secret) for place, secret in self.secrets.items())


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[KeyWorld]:
    scenario = Scenario(projects_per_customer=1, members_per_project=1, allocations_per_project=1)
    with SimulatedWaldur("8.1", scenario=scenario) as waldur:
        yield KeyWorld(waldur, tmp_path)


@HOW
@pytest.mark.parametrize("action", ["delete", "pause", "rotate"])
def test_many_keys_that_would_be_worth_nothing_wait_and_a_few_do_not(
    keys: KeyWorld, how: str, action: str
) -> None:
    for uuid in keys.ask(action, FEW):
        api_keys.answer(keys.site, uuid)
    assert keys.usable() == MANY - FEW
    with Store(keys.site.state_dir).write() as db:
        db.run("DELETE FROM charges")
    asked = keys.ask(action)
    if how == "by events":
        answered = [api_keys.answer(keys.site, uuid) for uuid in asked]
        assert "is held as plan" in answered[-1]
    limit = HOUR if how == "by events" else 0
    passes.process_orders(keys.site)
    assert keys.usable() == min(MANY - FEW, MANY - limit)
    assert sum(bool(key.pending_action) for key in keys.waldur.store.api_keys) == MANY - limit
    assert len(approve_all(keys.site)) == 1
    report = passes.process_orders(keys.site)
    assert (report.held, keys.usable()) == ((), 0)


def test_many_keys_that_are_made_or_resumed_wait_for_no_approval(keys: KeyWorld) -> None:
    keys.ask("create")
    assert passes.process_orders(keys.site).held == ()


# Usage that a QoS has counted ---------------------------------------------------------------------


def test_orders_that_would_forget_what_the_qos_of_many_accounts_have_counted_wait(world_of: WorldOf) -> None:
    """The accounts and their QoS stand, as after a deletion that was taken back; both come back with limits at zero."""
    own = {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}
    world = world_of(1, 1, backend={"qos_management": own}, policy=POLICY)
    waldur, state = world.waldur, world.cluster
    (project,) = waldur.seed.project_uuids
    parent = next(name for name in state.accounts if name.startswith("p_"))
    names = [f"a_o{number}" for number in range(MANY)]
    accounts = {name: Account(name, parent) for name in names}
    qos = state.qos.union(names)
    world.backend.state = replace(
        state, accounts={**state.accounts, **accounts}, qos=qos, made_qos=frozenset(names)
    )

    def placed(some: list[str]) -> None:
        for name in some:
            slug = name.removeprefix("a_")
            waldur.place_create_order(project, slug, limits={"cpu": 1000, "mem": 2000}, slug=slug)

    placed(names[:FEW])
    assert passes.process_orders(world.site).counted() == {"done": FEW}
    hour_passes(world)
    placed(names[FEW:])
    report = passes.process_orders(world.site)
    assert report.counted() == {"waiting": MANY - FEW}
    assert any(
        f"the counted usage of {MANY - FEW} accounts would be forgotten" in plan.reason
        for plan in report.held
    )
