# SPDX-License-Identifier: MIT
"""A simulated 2024 server in the situation of the recorded one: same people, offering and five orders."""

from __future__ import annotations

from datetime import UTC, datetime

from simulator.control.experiments import OrderOptions
from simulator.rules import members
from simulator.server.waldur import SimulatedWaldur
from simulator.world import seed
from simulator.world.records import User
from simulator.world.seed import ComponentSpec, Scenario

_COMPONENTS = (
    ComponentSpec(type="cpu", name="CPU", measured_unit="k-Hours", billing_type="usage", price=1.5),
    ComponentSpec(
        type="cpu_nodes", name="Nodes", measured_unit="nodes", min_value=1, max_value=100, price=10.0
    ),
    ComponentSpec(type="mem", name="RAM", measured_unit="k-GB-Hours", billing_type="usage", price=0.25),
)
_TEAM = (
    ("alice", "Alice Adams", "PROJECT.MANAGER"),
    ("bob", "Bob Brown", "PROJECT.ADMIN"),
    ("carol", "Carol Clark", "PROJECT.MEMBER"),
)
_WHO = {
    "agent": "provider_owner",
    "consumer": "consumer_owner",
    "staff": "staff",
    "alice": "alice",
    "carol": "carol",
}


def make_world() -> SimulatedWaldur:
    scenario = Scenario(
        provider_name="Test Provider",
        offering_name="SLURM 1120235006",
        components=_COMPONENTS,
        customers=0,
        agent_username="provider_owner",
    )
    waldur = SimulatedWaldur("2024", scenario=scenario)
    waldur.store.clock.freeze(datetime(2026, 11, 20, 23, 50, 5, 123456, tzinfo=UTC))
    _dress_provider(waldur)
    project_uuid = _add_consumer(waldur)
    # Only the replay decides when the processor runs.
    waldur.site.configure(processor_delay_s=3600.0)
    for number in range(1, 6):
        waldur.orders.place_create(
            project_uuid,
            f"alloc-0{number}",
            limits={"cpu_nodes": 2},
            options=OrderOptions(author="consumer_owner"),
        )
    return waldur


def tokens(waldur: SimulatedWaldur) -> dict[str | None, str | None]:
    """The Authorization header of everybody in the recording."""
    known: dict[str | None, str | None] = {
        who: f"Token {waldur.token(username)}" for who, username in _WHO.items()
    }
    return known | {"bad": "Token nonsense", None: None}


def _dress_provider(waldur: SimulatedWaldur) -> None:
    store = waldur.store
    offering = store.offerings[waldur.seed.offering_uuid]
    del offering.plans[1:]
    store.customers[offering.customer_uuid].abbreviation = "provider"
    owner = store.users.where("username", "provider_owner")[0]
    owner.first_name, owner.last_name = "Petra", "Provider"
    staff = store.users.where("username", "staff")[0]
    for grant in store.grants:
        grant.created_by_uuid = staff.uuid


def _add_consumer(waldur: SimulatedWaldur) -> str:
    store = waldur.store
    customer = seed.add_customer(store, "Test Consumer")
    customer.abbreviation = "consumer"
    owner = seed.add_user(store, "consumer_owner", full_name="Carl Consumer")
    seed.grant(store, owner, "CUSTOMER.OWNER", scope_type="customer", scope_uuid=customer.uuid)
    waldur.seed.customer_uuids.append(customer.uuid)
    project = seed.add_project(store, customer, "Project 1120235006")
    for username, full_name, role in _TEAM:
        user: User = seed.add_user(store, username, full_name=full_name)
        members.add(store, project, user, role=role)
    return project.uuid
