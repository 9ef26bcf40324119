# SPDX-License-Identifier: MIT
"""A flood of people who join projects in Waldur, through broker, bridge, queue and worker to the real SLURM: how many
passes, writes and requests it takes, and how long after the last event the last one is in.

The tests run a tenth of it, the benchmark all of it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from agent.state import passes
from agent.state.passes import Figure
from rig import event_kills, large_tree
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.large_tree import Account
from rig.processes import wait_until
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.events.broker import EventBroker
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

MEMBERS = 1


@dataclass(frozen=True)
class Flood:
    """So many people join, one after the other, projects in turn."""

    joins: int
    projects: int
    # All join in so many seconds.
    within_s: float = 0.0
    # They have accounts at the offering already, so that events name their roles only.
    known: bool = False
    # One is placed in between.
    order: bool = False
    prefix: str = "flood"


@dataclass
class FloodResult:
    """How long the agent took, and with what."""

    # From the last event to the last member.
    tail_s: float
    # From an order placed half-way to its end.
    order_s: float | None
    passes: Counter[str]
    commands: Counter[str]
    requests: Counter[str]

    def line(self) -> str:
        passes = ", ".join(f"{count} {kind}" for kind, count in sorted(self.passes.items()))
        order = "" if self.order_s is None else f", an order placed in between done in {self.order_s:.1f} s"
        return (
            f"the last member in {self.tail_s:.1f} s after the last event{order}; {self.commands['write']} writes, "
            f"{self.passes.total()} passes ({passes}), {self.commands['read']} reads of the cluster, "
            f"{self.requests.total()} requests"
        )


class FloodSite:
    """A site in which all is in step, with its processes."""

    def __init__(
        self, slurm: SlurmCluster, server: RedisServer, waldur: SimulatedWaldur, folder: Path, **offering: Any
    ) -> None:
        self.slurm, self.waldur, self.folder = slurm, waldur, folder
        self.config = configuration(waldur, folder, membership_sync_backend="slurm", **offering)
        env = environment(self.config, server.url, {"SLURM_CONF": slurm.env["SLURM_CONF"]})
        self.worker = CeleryProcess("worker", folder / "worker.log", env)
        self.bridge = BridgeProcess(folder / "bridge.log", env)
        self._client: Any = redis.Redis.from_url(server.url)
        self.state_dir = folder / "state"
        self._journal = self.state_dir / "journal" / "journal.jsonl"
        self._joined: set[str] = set()
        self._read_up_to = 0

    def start(self) -> None:
        self.worker.start()
        self.bridge.start()
        wait_until("the first full pass", lambda: self.passes()["all ok"] > 0)

    def stop(self) -> None:
        self.bridge.end()
        self.worker.end()

    def sums(self, figure: Figure) -> Counter[str]:
        found: Counter[str] = Counter()
        for count in passes.counts(self.state_dir, self.waldur.seed.offering_uuid):
            if count.figure is figure:
                found[f"{count.kind} {count.outcome}".strip()] += int(count.value)
        return found

    def passes(self) -> Counter[str]:
        return self.sums(Figure.PASSES)

    def is_quiet(self) -> bool:
        """Return whether nothing waits and nothing is at work."""
        keys = [
            key for pattern in ("site.*", "site-work:*", "unacked*") for key in self._client.keys(pattern)
        ]
        return not keys

    def backlog(self) -> int:
        """Return how many projects and resources that events named wait."""
        return int(self._client.hlen(f"site-changed:{self.waldur.seed.offering_uuid}"))

    def differences(self) -> list[str]:
        """Return the accounts that have other members than Waldur wants."""
        return event_kills.differences(self.slurm, self.waldur, ())

    def joined(self) -> set[str]:
        """Return who has joined an account, as the journal has it; only what is new of that is read."""
        if self._journal.exists():
            with self._journal.open() as lines:
                lines.seek(self._read_up_to)
                while (line := lines.readline()).endswith("\n"):
                    self._read_up_to = lines.tell()
                    if '"AddMember"' in line and '"done"' in line:
                        self._joined.add(json.loads(line)["ids"]["user"])
        return self._joined


def accounts_of(waldur: SimulatedWaldur) -> list[Account]:
    """Return the accounts of all resources with their members, as passes make them, but for limits."""
    store = waldur.store
    names = {row.user_uuid: row.username for row in store.offering_users}
    found: dict[str, Account] = {}
    for resource in store.resources:
        project = store.projects[resource.project_uuid]
        customer = store.customers[project.customer_uuid]
        top, middle, own = f"c_{customer.slug}", f"p_{project.slug}", resource.backend_id
        team = sorted(names[grant.user_uuid] for grant in store.active_grants(project.uuid))
        found[top] = Account(top, description=customer.name, organization=customer.name)
        found[middle] = Account(middle, top, description=project.name, organization=customer.name)
        found[own] = Account(own, middle, team, description=resource.name, organization=customer.name)
    return list(found.values())


def run(made: FloodSite, flood: Flood) -> FloodResult:
    """Let the people join, and wait until they are in."""
    waldur, projects = made.waldur, made.waldur.seed.project_uuids[: flood.projects]
    names = [f"{flood.prefix}{number}" for number in range(flood.joins)]
    if flood.known:
        meeting = waldur.people.add_project("where they met")
        for name in names:
            waldur.people.add_member(meeting, name, account=name)
    wait_until("quiet", made.is_quiet)
    before = [made.sums(figure) for figure in (Figure.PASSES, Figure.COMMANDS, Figure.REQUESTS)]
    began_s, order, placed_s, seconds = time.monotonic(), "", 0.0, {}

    def is_order_done() -> bool:
        if order and "order" not in seconds and waldur.order(order).state.value == "done":
            seconds["order"] = time.monotonic() - placed_s
        return not flood.order or "order" in seconds

    def are_members_in() -> bool:
        if "tail" not in seconds and made.joined() >= set(names):
            seconds["tail"] = time.monotonic() - last_s
        return "tail" in seconds

    for number, name in enumerate(names):
        time.sleep(max(0.0, began_s + flood.within_s * number / flood.joins - time.monotonic()))
        if flood.order and number == flood.joins // 2:
            placed_s = time.monotonic()
            order = waldur.place_create_order(projects[0], "in between", slug="in_between")
        waldur.people.add_member(projects[number % len(projects)], name, account=name)
        is_order_done()
    last_s = time.monotonic()
    wait_until("members and order", lambda: all((are_members_in(), is_order_done())), pause_s=0.1)
    wait_until("quiet", made.is_quiet)
    after = [made.sums(figure) for figure in (Figure.PASSES, Figure.COMMANDS, Figure.REQUESTS)]
    return FloodResult(
        seconds["tail"], seconds.get("order"), *(now - then for now, then in zip(after, before, strict=True))
    )


@contextmanager
def site(
    slurm: SlurmCluster,
    server: RedisServer,
    broker: EventBroker,
    folder: Path,
    *,
    projects: int,
    others: int = 0,
    **offering: Any,
) -> Iterator[FloodSite]:
    """Start a site of projects with an allocation each, on a cluster that holds associations of others."""
    scenario = Scenario(
        projects_per_customer=projects,
        members_per_project=MEMBERS,
        allocations_per_project=1,
        backend_prefix="a_",
    )
    server.flush()
    with SimulatedWaldur(scenario=scenario) as waldur:
        if others:
            large_tree.clear(slurm)
        large_tree.add(slurm, [*large_tree.others(others), *accounts_of(waldur)])
        waldur.publish_to(broker)
        made = FloodSite(slurm, server, waldur, folder, **offering)
        try:
            made.start()
            yield made
        finally:
            made.stop()
            if others:
                large_tree.clear(slurm)
