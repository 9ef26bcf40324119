# SPDX-License-Identifier: MIT
"""Ready-made worlds: a provider with one offering, customers with projects, members with accounts.

Deterministic: the same Scenario always gives the same uuids, names and tokens. The demo and the tests
start from one; whatever else they need they add through the control API.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from decimal import Decimal

from simulator.rules import members, offering_user_rules, placing
from simulator.rules.placing import OrderRequest
from simulator.world.identifiers import as_uuid
from simulator.world.records import (
    Component,
    Customer,
    Grant,
    JsonObject,
    Offering,
    OfferingUserState,
    OrderState,
    OrderType,
    Plan,
    Project,
    ResourceState,
    Token,
    User,
)
from simulator.world.store import ServiceProvider, Store

_FIRST_NAMES = ("Ada", "Boris", "Chloe", "Dmitri", "Eva", "Farid", "Greta", "Hugo", "Ines", "Jonas")
_LAST_NAMES = ("Arvo", "Berg", "Costa", "Dahl", "Eder", "Frost", "Gran", "Holt", "Ilves", "Jansen", "Kask")


@dataclass(frozen=True, kw_only=True)
class ComponentSpec:
    type: str
    name: str
    measured_unit: str
    billing_type: str = "limit"
    unit_factor: int = 1
    limit_period: str | None = None
    limit_amount: int | None = None
    is_prepaid: bool = False
    min_value: int | None = None
    max_value: int | None = None
    price: float = 1.0


DEFAULT_COMPONENTS = (
    ComponentSpec(type="cpu", name="CPU", measured_unit="core-hours", unit_factor=60),
    ComponentSpec(type="mem", name="Memory", measured_unit="GB-hours", unit_factor=61440),
    ComponentSpec(type="gpu", name="GPU", measured_unit="GPU-hours", unit_factor=60, price=20.0),
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Amounts of everything."""

    provider_name: str = "Larch Computing Centre"
    offering_name: str = "Larch HPC"
    offering_uuid: str | None = None
    offering_type: str = "Marketplace.Slurm"
    components: tuple[ComponentSpec, ...] = DEFAULT_COMPONENTS
    plan_quotas: dict[str, int] = field(default_factory=dict)
    plugin_options: JsonObject = field(default_factory=dict)
    customers: int = 1
    projects_per_customer: int = 2
    members_per_project: int = 3
    # The last so many members of each project have an account without a name, in `unnamed_state`.
    unnamed_members: int = 0
    unnamed_state: OfferingUserState = OfferingUserState.REQUESTED
    # Resources that are OK from the start.
    allocations_per_project: int = 0
    allocation_limits: dict[str, int] = field(default_factory=lambda: {"cpu": 1000, "mem": 2000, "gpu": 10})
    backend_prefix: str = "a_"
    agent_username: str = "agent"


@dataclass(kw_only=True)
class Seeded:
    """Uuids of what was made."""

    offering_uuid: str
    provider_uuid: str
    plan_uuids: list[str]
    customer_uuids: list[str] = field(default_factory=list)
    project_uuids: list[str] = field(default_factory=list)
    resource_uuids: list[str] = field(default_factory=list)
    members: dict[str, list[str]] = field(default_factory=dict)
    # Of agent, offering-manager, staff, support, consumer and each member.
    tokens: dict[str, str] = field(default_factory=dict)


def populate(store: Store, scenario: Scenario) -> Seeded:
    """Add the scenario to the store; may be called again with other names for a second provider."""
    if not store.users.where("username", "staff"):
        add_user(store, "staff", full_name="Stella Staff", is_staff=True)
        add_user(store, "support", full_name="Sami Support").is_support = True
    seeded = _offer(store, scenario)
    for number in range(1, scenario.customers + 1):
        _customer(store, scenario, seeded, number=number)
    seeded.tokens = {store.users[token.user_uuid].username: token.key for token in store.tokens.values()}
    return seeded


def add_user(store: Store, username: str, *, full_name: str = "", is_staff: bool = False) -> User:
    """Add a user with an API token: the SHA-1 of the username."""
    first, _, last = (full_name or username.capitalize()).partition(" ")
    user = store.users.add(
        User(
            uuid=store.uuids.new(),
            username=username,
            first_name=first,
            last_name=last,
            email=f"{username}@example.org",
            slug=store.slugs.make("user", username),
            created=store.clock.now(),
            is_staff=is_staff,
        )
    )
    key = hashlib.sha1(username.encode(), usedforsecurity=False).hexdigest()
    store.tokens[key] = Token(key=key, user_uuid=user.uuid)
    return user


def add_customer(store: Store, name: str) -> Customer:
    customer = Customer(
        uuid=store.uuids.new(),
        name=name,
        slug=store.slugs.make("customer", name),
        created=store.clock.now(),
        abbreviation="".join(word[0] for word in name.split()),
    )
    return store.customers.add(customer)


def add_project(store: Store, customer: Customer, name: str, *, slug: str | None = None) -> Project:
    project = Project(
        uuid=store.uuids.new(),
        name=name,
        slug=store.slugs.make("project", name) if slug is None else slug,
        customer_uuid=customer.uuid,
        created=store.clock.now(),
    )
    return store.projects.add(project)


def grant(store: Store, user: User, role: str, *, scope_type: str, scope_uuid: str) -> Grant:
    staff = store.users.where("username", "staff")
    return store.grants.add(
        Grant(
            uuid=store.uuids.new(),
            user_uuid=user.uuid,
            role=role,
            scope_type=scope_type,
            scope_uuid=scope_uuid,
            created=store.clock.now(),
            created_by_uuid=staff[0].uuid if staff else None,
        )
    )


def _offer(store: Store, scenario: Scenario) -> Seeded:
    customer = add_customer(store, scenario.provider_name)
    provider = store.providers.add(
        ServiceProvider(uuid=store.uuids.new(), customer_uuid=customer.uuid, created=customer.created)
    )
    offering = store.offerings.add(_offering(store, scenario, customer, provider))
    agent = add_user(store, scenario.agent_username, full_name="Site Agent")
    grant(store, agent, "CUSTOMER.OWNER", scope_type="customer", scope_uuid=customer.uuid)
    manager = add_user(store, f"{scenario.agent_username}-offering-manager", full_name="Offering Manager")
    grant(store, manager, "OFFERING.MANAGER", scope_type="offering", scope_uuid=offering.uuid)
    store.oidc_clients[scenario.agent_username] = ("secret", agent.username)
    return Seeded(
        offering_uuid=offering.uuid,
        provider_uuid=provider.uuid,
        plan_uuids=[plan.uuid for plan in offering.plans],
    )


def _offering(store: Store, scenario: Scenario, customer: Customer, provider: ServiceProvider) -> Offering:
    may_create: JsonObject = {"service_provider_can_create_offering_user": True}
    options: JsonObject = {"username_generation_policy": "service_provider"}
    return Offering(
        uuid=as_uuid(scenario.offering_uuid) or store.uuids.new(),
        name=scenario.offering_name,
        slug=store.slugs.make("offering", scenario.offering_name),
        customer_uuid=customer.uuid,
        provider_uuid=provider.uuid,
        category_uuid=store.uuids.new(),
        created=store.clock.now(),
        type=scenario.offering_type,
        components=[_component(store, spec) for spec in scenario.components],
        plans=_plans(store, scenario),
        plugin_options=options | (may_create if store.age.is_modern else {}) | scenario.plugin_options,
        secret_options={} if store.age.is_modern else may_create,
    )


def _component(store: Store, spec: ComponentSpec) -> Component:
    return Component(
        uuid=store.uuids.new(),
        type=spec.type,
        name=spec.name,
        billing_type=spec.billing_type,
        measured_unit=spec.measured_unit,
        unit_factor=spec.unit_factor,
        limit_period=spec.limit_period or ("month" if spec.billing_type == "limit" else None),
        limit_amount=spec.limit_amount,
        is_prepaid=spec.is_prepaid,
        min_value=spec.min_value,
        max_value=spec.max_value,
    )


def _plans(store: Store, scenario: Scenario) -> list[Plan]:
    """Two plans, the second with twice the quotas, so that a plan can be switched."""
    prices = {spec.type: spec.price for spec in scenario.components}
    small = {spec.type: scenario.plan_quotas.get(spec.type, 0) for spec in scenario.components}
    large = {name: 2 * quota for name, quota in small.items()}
    return [
        Plan(uuid=store.uuids.new(), name="Standard", prices=prices, quotas=small),
        Plan(uuid=store.uuids.new(), name="Large", prices=prices, quotas=large),
    ]


def _customer(store: Store, scenario: Scenario, seeded: Seeded, *, number: int) -> None:
    customer = add_customer(store, f"{_LAST_NAMES[-number % len(_LAST_NAMES)]} Institute {number}")
    owner_name = "consumer" if not store.users.where("username", "consumer") else f"owner-{customer.slug}"
    owner = add_user(store, owner_name, full_name="Carla Consumer")
    grant(store, owner, "CUSTOMER.OWNER", scope_type="customer", scope_uuid=customer.uuid)
    seeded.customer_uuids.append(customer.uuid)
    for index in range(1, scenario.projects_per_customer + 1):
        project = add_project(store, customer, f"Project {number}-{index}")
        seeded.project_uuids.append(project.uuid)
        _team(store, scenario, seeded, project=project)
        for nth in range(1, scenario.allocations_per_project + 1):
            _allocation(store, scenario, seeded, project=project, number=nth)


def _team(store: Store, scenario: Scenario, seeded: Seeded, *, project: Project) -> None:
    offering = store.offerings[seeded.offering_uuid]
    usernames = seeded.members.setdefault(project.uuid, [])
    for index in range(scenario.members_per_project):
        number = len(store.users)
        first, last = _FIRST_NAMES[number % len(_FIRST_NAMES)], _LAST_NAMES[number % len(_LAST_NAMES)]
        user = add_user(store, f"{first}.{last}.{number}".lower(), full_name=f"{first} {last}")
        role = "PROJECT.MANAGER" if index == 0 else "PROJECT.MEMBER"
        members.add(store, project, user, role=role)
        is_named = index < scenario.members_per_project - scenario.unnamed_members
        account = offering_user_rules.create(
            store, offering, user, username=account_name(user) if is_named else ""
        )
        if not is_named:
            account.state = scenario.unnamed_state
        usernames.append(user.username)


def account_name(user: User) -> str:
    """Return the name on the cluster: initial, surname and number, as in `aarvo12`."""
    return f"{user.first_name[:1]}{user.last_name}{user.username.rpartition('.')[2]}".lower()


def _allocation(store: Store, scenario: Scenario, seeded: Seeded, *, project: Project, number: int) -> None:
    offering = store.offerings[seeded.offering_uuid]
    known = {component.type for component in offering.components}
    limits = {name: value for name, value in scenario.allocation_limits.items() if name in known}
    name = f"{project.name.lower()} allocation {number}"
    request = OrderRequest(
        type=OrderType.CREATE, limits=limits, attributes={"name": name}, plan_uuid=seeded.plan_uuids[0]
    )
    resource = placing.new_resource(store, offering, project, request=request)
    owner = next(u for u in store.users if u.username == "consumer")
    order = placing.place(store, resource, request, author=owner)
    order.state, order.completed_at = OrderState.DONE, store.clock.now()
    order.cost = order.cost or Decimal(0)
    resource.state = ResourceState.OK
    resource.backend_id = f"{scenario.backend_prefix}{resource.slug}".replace("-", "_")
    seeded.resource_uuids.append(resource.uuid)
