# SPDX-License-Identifier: MIT
"""Whole passes over a simulated Waldur one of whose answers is broken: orders, members, reports.

A pass may end with an error of ours. What may not happen: any other exception; people, accounts or limits that go, or
orders and resources that fail, because of an answer that cannot be read; and an odd value of one resource that stops
the pass or harms another.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from agent.config.model import Mode
from agent.core.associations import Association
from agent.core.errors import SiteAgentError
from agent.core.model import Account
from agent.core.policy import LimitsSource
from agent.run.passes import PASSES
from agent.run.site import ProcessCache, Site
from agent.waldur.client import WaldurClient
from backends.testing.memory import MemoryBackend, slurm_settings
from rig.fuzzing import Target
from rig.site import configuration, settings_of
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

LIMITS = {"cpu": 10, "mem": 2}
CHANGING = ("orders", "resources", "offering_users", "usages", "user_usages")
UUID = re.compile(r"[0-9a-f]{32}")
# What people outside of the provider choose, or Waldur's plugins write: in orders, resources, users and their limits.
FREE = (
    "name", "resource_name", "slug", "project_slug", "project_name", "customer_slug", "customer_name", "limits",
    "attributes", "backend_metadata", "error_message", "end_date", "created", "last_sync", "paused", "downscaled",
    "plan_uuid", "username", "user_username", "user_full_name", "user_first_name", "user_last_name", "user_email",
    "is_restricted", "limit", "component_type", "role", "usage",
)  # fmt: skip
# Names of what a row is about, by which its own harm is known.
OWN = ("uuid", "backend_id", "resource_uuid", "marketplace_resource_uuid", "username")
POSTED = {"status": "done", "detail": "It is done.", "is_unique": True, "uuid": "0" * 32, "state": "OK"}


@dataclass(frozen=True)
class Harm:
    """What is gone from the cluster, and what failed in Waldur."""

    things: frozenset[tuple[str, ...]]

    def beyond(self, other: Harm) -> list[tuple[str, ...]]:
        return sorted(self.things - other.things)


class FuzzedSite:
    """A site as it is before a pass, as often as it is wanted."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        self.waldur = waldur
        self.backend = MemoryBackend(settings=slurm_settings())
        path = configuration(
            waldur,
            folder,
            membership_sync_backend="slurm",
            reporting_backend="slurm",
            username_management_backend="template",
        )
        self._offering = settings_of(path).offerings[0]
        self._state_dir = folder / "state"
        self._client = WaldurClient(
            self._offering.access, user_agent="fuzz", offering_uuid=self._offering.uuid, attempts=1
        )
        self._fill()
        store = waldur.store
        self._cluster = self.backend.state
        self._rows = {name: copy.deepcopy(list(getattr(store, name))) for name in CHANGING}
        self._passes = 0
        self._usual: dict[Mode, Harm] = {}

    def _fill(self) -> None:
        """Make what Waldur says is there, and used by everybody; and an order of each kind."""
        waldur, store, projects = self.waldur, self.waldur.store, self.waldur.seed.project_uuids
        waldur.site.add_shared_account(projects[0], "service")
        names = {row.user_uuid: row.username for row in store.offering_users}
        accounts, members = dict(self.backend.state.accounts), set()
        for resource in store.resources:
            waldur.site.change("resources", resource.uuid, limits=LIMITS)
            project = store.projects[resource.project_uuid]
            customer = store.customers[project.customer_uuid]
            own = (f"c_{customer.slug}", f"p_{project.slug}", resource.backend_id)
            for parent, name in zip(("root", *own), own, strict=False):
                accounts[name] = Account(name, parent, limits={"cpu": 540, "mem": 122880})
            users = {names[grant.user_uuid] for grant in store.active_grants(project.uuid)}
            users |= {"service"} if project.uuid == projects[0] else set()
            members |= {Association(resource.backend_id, user) for user in users}
        self.backend.state = replace(
            self.backend.state,
            accounts=accounts,
            associations=frozenset(members),
            default_accounts={member.user: member.account for member in members},
        )
        for account_row in list(store.offering_users):
            person = store.users[account_row.user_uuid].username
            waldur.site.add_user_limit(waldur.seed.resource_uuids[0], person, component_type="cpu", limit=5)
        self.backend.memory.counted[store.clock.now().strftime("%Y-%m")] = {
            name: {user: {"cpu": 7200} for user in self.backend.state.users_of(name)} for name in accounts
        }
        waldur.orders.place_create(projects[0], "New one", limits=LIMITS)
        waldur.orders.place_update(waldur.seed.resource_uuids[2], {"cpu": 20, "mem": 2})
        waldur.orders.place_terminate(waldur.seed.resource_uuids[3])

    def reset(self) -> None:
        store = self.waldur.store
        with store.lock:
            for name, rows in self._rows.items():
                table: Any = getattr(store, name)
                for row in table:
                    table.remove(row)
                for row in copy.deepcopy(rows):
                    table.add(row)
        self.backend.state = self._cluster
        self.waldur.faults.clear()
        self.waldur.requests.reset()

    def run(self, mode: Mode) -> SiteAgentError | None:
        """Run a pass as a process that has just started; return what ended it. The owner of the limits alternates."""
        self._passes += 1
        source = (LimitsSource.WALDUR, LimitsSource.CLUSTER)[self._passes % 2]
        site = Site(
            replace(self._offering, limits_source=source),
            self._client,
            self.backend,
            self._state_dir / str(self._passes // 50),
            cache=ProcessCache(),
        )
        return PASSES[mode](site).error

    def harm(self) -> Harm:
        before, now, store = self._cluster, self.backend.state, self.waldur.store
        gone = {("account", name) for name in before.accounts.keys() - now.accounts.keys()}
        gone |= {("member", each.account, each.user) for each in before.associations - now.associations}
        gone |= {
            ("limit", name, tres)
            for name, account in before.accounts.items()
            if name in now.accounts
            for tres, value in account.limits.items()
            if now.accounts[name].limits.get(tres, 0) < value
        }
        gone |= {("order", row.uuid) for row in store.orders if row.state.value in ("erred", "rejected")}
        gone |= {("resource", row.uuid) for row in store.resources if row.state.value == "Erred"}
        return Harm(frozenset(gone))

    def answers(self, mode: Mode) -> Iterator[tuple[str, str, Any]]:
        """Yield method, path and body of each answer that a pass of this mode gets."""
        self.reset()
        error = self.run(mode)
        assert error is None, error
        self._usual[mode] = self.harm()
        asked = {(each.method, each.endpoint): each.path for each in reversed(self.waldur.requests.entries())}
        self.reset()
        token = self.waldur.token()
        for (method, _), whole in reversed(asked.items()):
            path = whole.partition("?")[0]
            if method != "GET":
                yield method, path, POSTED
                continue
            request = Request(f"{self.waldur.root_url}{whole}", headers={"Authorization": f"Token {token}"})
            with urlopen(request) as answer:
                yield method, path, json.load(answer)

    def broken(self, mode: Mode, method: str, path: str, sample: Any, given: Any) -> None:
        """Run a pass with this answer. Raises the error that ended it, and AssertionError for what may not happen."""
        body = given if isinstance(given, str) else json.dumps(given)
        error = self._with_answer(mode, method, path, body)
        try:
            readable = isinstance(json.loads(body), type(sample))
        except (ValueError, RecursionError):
            readable = False
        if not readable and method == "GET":
            beyond = self.harm().beyond(self._usual[mode])
            assert not beyond, f"an answer that cannot be read has cost {beyond}"
        if error is not None:
            raise error

    def odd(self, mode: Mode, path: str, rows: list[dict[str, Any]], given: Any) -> None:
        """Run a pass in which one row has these values. Raises AssertionError where it stops, or harms another."""
        values = given if isinstance(given, dict) else {}
        odd = {**rows[0], **{key: value for key, value in values.items() if key in FREE}}
        error = self._with_answer(mode, "GET", path, json.dumps([odd, *rows[1:]]))
        assert error is None, f"one odd row has stopped the pass: {error}"
        own = {str(rows[0].get(key)) for key in OWN}
        own |= {order.uuid for order in self.waldur.store.orders if order.resource_uuid in own}
        beyond = [each for each in self.harm().beyond(self._usual[mode]) if own.isdisjoint(each)]
        assert not beyond, f"one odd row has cost {beyond}"

    def _with_answer(self, mode: Mode, method: str, path: str, body: str) -> SiteAgentError | None:
        self.reset()
        self.waldur.inject(
            Fault(
                method=method,
                path=f"^{re.escape(path)}$",
                status=200,
                body=body.encode("utf-8", "replace").decode(),
                content_type="application/json",
                times=None,
                carried_out=True,
            )
        )
        return self.run(mode)


@contextmanager
def fuzzed_site(folder: Path) -> Iterator[FuzzedSite]:
    """Yield a site whose simulated Waldur runs."""
    scenario = Scenario(projects_per_customer=2, members_per_project=2, allocations_per_project=2)
    with SimulatedWaldur(scenario=scenario) as waldur:
        yield FuzzedSite(waldur, folder)


def targets(site: FuzzedSite) -> list[Target]:
    """Return a target for each answer that a pass of each mode gets."""
    return [target for mode in PASSES for target in _of_mode(site, mode)]


def _of_mode(site: FuzzedSite, mode: Mode) -> Iterator[Target]:
    refuses = (SiteAgentError,)
    for method, path, sample in list(site.answers(mode)):
        name = f"pass {mode}: {method} {UUID.sub('UUID', path)}"
        yield Target(
            name, [sample, json.dumps(sample)], _reader(site.broken, mode, method, path, sample), refuses
        )
        if method == "GET" and isinstance(sample, list) and sample:
            free = {key: value for key, value in sample[0].items() if key in FREE}
            yield Target(f"{name}, one row", [free], _reader(site.odd, mode, path, sample), ())


def _reader(run: Callable[..., None], *given: Any) -> Callable[[Any], None]:
    return lambda document: run(*given, document)
