# SPDX-License-Identifier: MIT
"""Changes from outside the API and its checks: orders, people and resources, for tests, the demo and the control API.

Every method takes the store's lock, so tests may call it while the server runs. What is returned is a
copy; `SiteControl.change` is the way to alter a record.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from simulator.control import snapshot
from simulator.rules import members, offering_user_rules, placing, processor
from simulator.rules.placing import OrderRequest
from simulator.world import seed
from simulator.world.agent_records import PeriodicPolicy
from simulator.world.ages import Age
from simulator.world.records import (
    JsonObject,
    OfferingUser,
    OfferingUserState,
    Order,
    OrderType,
    ProjectGroup,
    Resource,
    SharedAccount,
    SshKey,
    User,
    UserUsageLimit,
)
from simulator.world.seed import Seeded
from simulator.world.store import Store


@dataclass(frozen=True, kw_only=True)
class OrderOptions:
    """Optional parts of an order."""

    # None: the seeded offering.
    offering_uuid: str | None = None
    plan_uuid: str | None = None
    attributes: JsonObject = field(default_factory=dict)
    start_date: date | None = None
    author: str = "consumer"
    is_approved: bool = True


_PLAIN = OrderOptions()
_OPTIONS = frozenset({"plugin_options", "secret_options"})


class _Control:
    def __init__(self, store: Store, seeded: Seeded) -> None:
        self._store = store
        self._seeded = seeded

    @contextmanager
    def _locked_store(self) -> Iterator[Store]:
        with self._store.lock:
            processor.catch_up(self._store)
            self._store.dates_checked_on = None
            yield self._store
            self._store.changed()

    def _user(self, username: str) -> User:
        known = self._store.users.where("username", username)
        if not known:
            raise LookupError(f"no user {username}")
        return known[0]


class OrderControl(_Control):
    """Place orders of every kind, with any values, and return their uuids; or return copies of orders."""

    def place_create(
        self,
        project_uuid: str,
        name: str,
        *,
        limits: JsonObject | None = None,
        slug: str | None = None,
        options: OrderOptions = _PLAIN,
    ) -> str:
        with self._locked_store() as store:
            offering = store.offerings[options.offering_uuid or self._seeded.offering_uuid]
            request = OrderRequest(
                type=OrderType.CREATE,
                limits=limits or {},
                attributes={"name": name, **options.attributes},
                plan_uuid=options.plan_uuid or offering.plans[0].uuid,
                start_date=options.start_date,
            )
            resource = placing.new_resource(
                store, offering, store.projects[project_uuid], request=request, slug=slug
            )
            return self._place(resource, request, options)

    def place_update(self, resource_uuid: str, limits: JsonObject, *, options: OrderOptions = _PLAIN) -> str:
        with self._locked_store() as store:
            resource = store.resources[resource_uuid]
            return self._place(resource, placing.limit_change(resource, limits), options)

    def place_option_change(
        self, resource_uuid: str, new_options: JsonObject, *, options: OrderOptions = _PLAIN
    ) -> str:
        with self._locked_store() as store:
            resource = store.resources[resource_uuid]
            return self._place(resource, placing.option_change(resource, new_options), options)

    def place_plan_switch(self, resource_uuid: str, plan_uuid: str, *, options: OrderOptions = _PLAIN) -> str:
        with self._locked_store() as store:
            resource = store.resources[resource_uuid]
            return self._place(resource, placing.plan_switch(resource, plan_uuid), options)

    def place_terminate(self, resource_uuid: str, *, options: OrderOptions = _PLAIN) -> str:
        with self._locked_store() as store:
            request = OrderRequest(type=OrderType.TERMINATE, attributes=dict(options.attributes))
            return self._place(store.resources[resource_uuid], request, options)

    def place_restore(self, resource_uuid: str, *, options: OrderOptions = _PLAIN) -> str:
        with self._locked_store() as store:
            resource = store.resources[resource_uuid]
            return self._place(resource, placing.restoration(resource), options)

    def get(self, order_uuid: str) -> Order:
        with self._locked_store() as store:
            return copy.deepcopy(store.orders[order_uuid])

    def all(self) -> list[Order]:
        with self._locked_store() as store:
            return [copy.deepcopy(order) for order in store.orders]

    def _place(self, resource: Resource, request: OrderRequest, options: OrderOptions) -> str:
        author = self._user(options.author)
        order = placing.place(self._store, resource, request, author=author, is_approved=options.is_approved)
        return order.uuid


class PeopleControl(_Control):
    """Change users, projects, members and their accounts at the seeded offering."""

    def add_user(self, username: str, *, full_name: str = "") -> User:
        with self._locked_store() as store:
            return copy.deepcopy(seed.add_user(store, username, full_name=full_name))

    def add_provider_user(self, username: str, role: str, *, permissions: Iterable[str] | None = None) -> str:
        """Add a user with a role at the seeded offering's provider, such as CUSTOMER.SITE_AGENT. Return the token.
        `permissions`: those of the role from now on, where it is one of a site's own making.
        """
        with self._locked_store() as store:
            user = seed.add_user(store, username)
            if permissions is not None:
                store.made_roles[role] = frozenset(permissions)
            provider = store.offerings[self._seeded.offering_uuid].customer_uuid
            seed.grant(store, user, role, scope_type="customer", scope_uuid=provider)
            return next(token.key for token in store.tokens.values() if token.user_uuid == user.uuid)

    def add_project(self, name: str, *, slug: str | None = None, customer_uuid: str | None = None) -> str:
        with self._locked_store() as store:
            customer = store.customers[customer_uuid or self._seeded.customer_uuids[0]]
            return seed.add_project(store, customer, name, slug=slug).uuid

    def add_member(
        self,
        project_uuid: str,
        username: str,
        *,
        role: str = "PROJECT.MEMBER",
        account: str | None = None,
        expiration_time: datetime | None = None,
    ) -> str:
        """Grant the role to a user, made if missing; name the account `account`. Return the user's uuid."""
        with self._locked_store() as store:
            if not store.users.where("username", username):
                seed.add_user(store, username)
            user = self._user(username)
            project = store.projects[project_uuid]
            members.add(store, project, user, role=role, expiration_time=expiration_time)
            if account is not None:
                self._name_account(user, account)
            return user.uuid

    def remove_member(self, project_uuid: str, username: str, *, role: str | None = None) -> None:
        with self._locked_store() as store:
            members.remove(store, store.projects[project_uuid], self._user(username), role=role)

    def set_account(
        self, username: str, account: str, *, state: OfferingUserState | None = None
    ) -> OfferingUser:
        """Give the user this account name at the seeded offering, in this state if one is named."""
        with self._locked_store():
            row = self._name_account(self._user(username), account)
            if state is not None:
                row.state = state
            return copy.deepcopy(row)

    def account(self, username: str) -> OfferingUser | None:
        with self._locked_store() as store:
            user = self._user(username)
            return copy.deepcopy(store.offering_user(self._seeded.offering_uuid, user.uuid))

    def remove_account(self, username: str) -> None:
        with self._locked_store() as store:
            row = store.offering_user(self._seeded.offering_uuid, self._user(username).uuid)
            if row is not None:
                store.offering_users.remove(row)

    def add_key(self, username: str, public_key: str) -> str:
        with self._locked_store() as store:
            user = self._user(username)
            key = SshKey(uuid=store.uuids.new(), name="key", public_key=public_key, user_uuid=user.uuid)
            return store.keys.add(key).uuid

    def deny(self, username: str, permission: str) -> None:
        """Answer 403 wherever this user needs this permission, such as `ORDER.APPROVE`."""
        with self._locked_store() as store:
            store.denied.add((username, permission))

    def allow(self, username: str, permission: str) -> None:
        with self._locked_store() as store:
            store.denied.discard((username, permission))

    def _name_account(self, user: User, account: str) -> OfferingUser:
        store = self._store
        offering = store.offerings[self._seeded.offering_uuid]
        row = store.offering_user(offering.uuid, user.uuid)
        row = row or offering_user_rules.create(store, offering, user)
        offering_user_rules.set_username(store, row, account)
        return row


class SiteControl(_Control):
    """Change resources, the clock, settings, and rows that only a provider's staff would make."""

    def resource(self, resource_uuid: str) -> Resource:
        with self._locked_store() as store:
            return copy.deepcopy(store.resources[resource_uuid])

    def resources(self) -> list[Resource]:
        with self._locked_store() as store:
            return [copy.deepcopy(resource) for resource in store.resources]

    def change(self, table: str, uuid: str, **values: Any) -> None:
        """Set fields of one row, such as `change("resources", uuid, paused=True, state="Erred")`."""
        with self._locked_store() as store:
            snapshot.change(getattr(store, table)[uuid], values)
            if table == "offerings" and not store.age.is_modern and not _OPTIONS.isdisjoint(values):
                offering_user_rules.blank_usernames(store, store.offerings[uuid])

    def upgrade(self, age: str) -> None:
        """Install another version while the server runs. What it kept behind resources stays; people get states."""
        with self._locked_store() as store:
            was_modern, store.age = store.age.is_modern, Age(age)
            if was_modern or not store.age.is_modern:
                return
            for offering in store.offerings:
                offering.plugin_options = {**offering.plugin_options, **offering.secret_options}
                offering.secret_options = {}
            for row in store.offering_users:
                row.state = OfferingUserState.OK if row.username else OfferingUserState.REQUESTED

    def add_shared_account(self, project_uuid: str, username: str, *, kind: str = "project") -> str:
        """Add a service account (`kind` project) or a course account (`course`)."""
        with self._locked_store() as store:
            now = store.clock.now()
            account = SharedAccount(
                uuid=store.uuids.new(),
                kind=kind,
                project_uuid=project_uuid,
                username=username,
                created=now,
                modified=now,
                email=f"{username}@example.org",
            )
            return store.accounts.add(account).uuid

    def add_project_group(self, project_uuid: str, name: str, gid: int | None) -> str:
        """Give a project a group of the seeded offering's provider (8.1.3)."""
        with self._locked_store() as store:
            customer_uuid = store.offerings[self._seeded.offering_uuid].customer_uuid
            (provider,) = store.providers.where("customer", customer_uuid)
            now = store.clock.now()
            group = ProjectGroup(
                uuid=store.uuids.new(),
                provider_uuid=provider.uuid,
                project_uuid=project_uuid,
                name=name,
                gid=gid,
                created=now,
                modified=now,
            )
            return store.project_groups.add(group).uuid

    def remove_project_group(self, uuid: str) -> None:
        """Delete a group in Waldur; its number is not given again."""
        with self._locked_store() as store:
            store.project_groups.remove(store.project_groups[uuid])

    def add_user_limit(self, resource_uuid: str, username: str, *, component_type: str, limit: float) -> str:
        with self._locked_store() as store:
            offering_uuid = store.resources[resource_uuid].offering_uuid
            account = store.offering_user(offering_uuid, self._user(username).uuid)
            if account is None:
                raise LookupError(f"{username} has no account at the offering")
            row = UserUsageLimit(
                uuid=store.uuids.new(),
                resource_uuid=resource_uuid,
                component_type=component_type,
                offering_user_uuid=account.uuid,
                limit=Decimal(str(limit)),
            )
            return store.user_limits.add(row).uuid

    def add_policy(self, **settings: Any) -> str:
        """Add a SLURM periodic usage policy of the seeded offering; settings are its API fields."""
        with self._locked_store() as store:
            policy = PeriodicPolicy(
                uuid=store.uuids.new(),
                offering_uuid=self._seeded.offering_uuid,
                created=store.clock.now(),
                settings=settings,
            )
            return store.policies.add(policy).uuid

    def configure(self, **settings: Any) -> None:
        """Change the settings of the running server by name."""
        with self._locked_store() as store:
            known = {f.name for f in fields(store.settings)}
            for name, value in settings.items():
                if name not in known:
                    raise ValueError(f"no setting {name}")
                setattr(store.settings, name, value)

    def advance(self, seconds: float) -> None:
        """Move the clock; whatever falls due happens before the next look."""
        with self._locked_store() as store:
            store.clock.advance(seconds)

    def run_background(self) -> int:
        """Run every scheduled job now, due or not; return how many there were."""
        with self._locked_store() as store:
            return store.background.run_all()

    def state(self) -> JsonObject:
        with self._locked_store() as store:
            return snapshot.whole_state(store)
