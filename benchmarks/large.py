# SPDX-License-Identifier: MIT
"""The everyday work on a cluster that holds many associations of others, and how it grows with them.

The tree is put into the database (rig.large_tree), and each pass runs in a process of its own. The last figures are
drawn into docs/static/performance.svg.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pygal

from agent.config.model import Mode
from agent.core.actions import CreateAccount, SetLimits, only
from agent.plan import accounts, allocations
from agent.run import site as sites
from agent.run import waldur_facts as membership_facts
from agent.run.site import offering_rules
from benchmarks import measured_pass
from benchmarks.parts import Parts
from rig import large_tree
from rig.large_tree import Account
from rig.processes import REPOSITORY, processor_s, wait_until
from rig.site import configuration, settings_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario

# Associations of others, and allocations of ours. The first is what the others are compared with; of the fourth there
# are 50,000 in all.
SIZES = ((0, 1_000), (1_000, 1_000), (10_000, 1_000), (42_700, 1_000), (50_000, 5_000))
MEMBERS = 5
PROJECTS_PER_CUSTOMER = 10
ORDERS = 10
# Members who leave: so many of each of so many accounts, three times: by bare commands, by a pass, with an order.
LEAVING, LEFT_ACCOUNTS = 10, 20
FIRST_SYNC = 200
# And as many reads of the same without a pass; the quickest of each counts.
IDLE_PASSES = 3
BARE_SYNC, ACCOUNTS_PER_LOAD = 40, 10
# Servers that use so little of the processor in half a second are quiet.
QUIET_S = 0.02
SERVERS = ("slurmdbd", "mariadbd", "slurmctld")
PLOT = REPOSITORY / "docs" / "static" / "performance.svg"
# Nothing of what is measured is to wait for an approval.
POLICY = {"max_removed_members": 100_000, "max_removed_percent": 100, "max_removed_accounts": 10_000}


@dataclass(frozen=True)
class Figure:
    """What was measured, in seconds, with what else is known of it."""

    what: str
    seconds: float
    more: str = ""
    # Its longest command that wrote.
    longest: str = ""
    longest_s: float = 0.0
    # The same by bare commands, right before it; 0 where there are none.
    bare_s: float = 0.0
    # Of the processor, by slurmdbd, its database and slurmctld; 0 where it was not measured.
    servers_s: float = 0.0
    bare_servers_s: float = 0.0
    # All that the cluster had when the first was measured.
    associations: int = 0


@dataclass(frozen=True)
class Bare:
    """What bare commands took, and their servers of the processor."""

    seconds: float
    servers_s: float = 0.0


@dataclass(frozen=True)
class World:
    slurm: SlurmCluster
    waldur: SimulatedWaldur
    config: Path
    projects: Sequence[str]

    def join(self, project: str, *names: str) -> None:
        for name in names:
            self.waldur.people.add_member(project, name, account=name)


def run(parts: Parts) -> Iterator[str]:
    seconds: dict[str, dict[int, float]] = defaultdict(dict)
    for others, ours in SIZES:
        for figure in figures(parts, others, ours):
            seconds[figure.what][figure.associations] = figure.seconds
            yield f"{others:,} others, {ours:,} ours: {figure.what}: {figure.more or f'{figure.seconds:.2f} s'}"
            if figure.longest:
                yield f"  the longest command: {figure.longest}"
    _plot(seconds)
    yield f"drawn: {PLOT.relative_to(REPOSITORY)}"


def figures(
    parts: Parts, others: int, ours: int, kinds: Sequence[str] = ("idle", "orders", "removal", "sync")
) -> Iterator[Figure]:
    """Measure on a cluster with so many associations of others and allocations of ours, at least FIRST_SYNC."""
    with _world(parts, others, ours) as world:
        associations = _count(world, "TRUE")
        for _ in range(2):
            _pass(world, "members")
        for kind in kinds:
            for figure in MEASURED[kind](world):
                yield replace(figure, associations=associations)


@contextmanager
def _world(parts: Parts, others: int, ours: int) -> Iterator[World]:
    """Make a site in which all is in step but what is measured."""
    scenario = Scenario(
        customers=ours // PROJECTS_PER_CUSTOMER,
        projects_per_customer=PROJECTS_PER_CUSTOMER,
        members_per_project=MEMBERS,
        allocations_per_project=1,
        backend_prefix="a_",
    )
    large_tree.clear(parts.slurm)
    with SimulatedWaldur(scenario=scenario) as waldur:
        config = configuration(
            waldur,
            parts.new_folder(),
            backend={"enable_user_homedir_account_creation": False},
            membership_sync_backend="slurm",
            policy=POLICY,
        )
        world = World(parts.slurm, waldur, config, waldur.seed.project_uuids)
        for number, project in enumerate(world.projects[: 3 * LEFT_ACCOUNTS]):
            world.join(project, *_leavers(number))
        large_tree.add(parts.slurm, [*large_tree.others(others), *_ours(world)])
        try:
            yield world
        finally:
            large_tree.clear(parts.slurm)


def _ours(world: World) -> list[Account]:
    """Return the accounts of all resources with their members, as passes make them."""
    settings = settings_of(world.config)
    site = sites.connect(settings, settings.offerings[0], Mode.MEMBERSHIP_SYNC)
    facts = membership_facts.gather(site)
    rules, snapshot = offering_rules(site, facts.offering), site.backend.observe()
    store = world.waldur.store
    names = {row.user_uuid: row.username for row in store.offering_users}
    found: dict[str, Account] = {}
    for resource in facts.resources:
        wanted = allocations.allocation(resource, rules, resource.backend_id, snapshot)
        spec = site.backend.canonical(wanted, snapshot)
        plan = accounts.building(spec, snapshot, "benchmark")
        limits = {tres: value for change in only(SetLimits, plan) for tres, value in change.after}
        for made in only(CreateAccount, plan):
            is_allocation = made.account == spec.account.name
            team = store.active_grants(store.resources[resource.uuid].project_uuid) if is_allocation else ()
            found[made.account] = Account(
                made.account,
                made.parent,
                sorted(names[grant.user_uuid] for grant in team),
                made.description,
                made.organization,
                limits if is_allocation else {},
            )
    return list(found.values())


def _idle(world: World) -> Iterator[Figure]:
    idle, bare_s, bare = _pass(world, "members"), math.inf, ""
    for _ in range(IDLE_PASSES):
        cluster_s, waldur_s = measured_pass.bare_reads_s(world.config)
        if cluster_s + waldur_s < bare_s:
            bare_s, bare = cluster_s + waldur_s, f"cluster {cluster_s:.2f} s, Waldur {waldur_s:.2f} s"
        idle = min(idle, _pass(world, "members"), key=lambda measured: measured.seconds)
    yield Figure("all that a full pass reads", bare_s, bare)
    yield _figure("idle membership pass", replace(idle, servers_s=0.0), bare=Bare(bare_s))


def _orders(world: World) -> Iterator[Figure]:
    bare = _bare_load(world, "b", accounts=ORDERS)
    yield Figure(f"bare load of {ORDERS} accounts x {MEMBERS} and their tiers", bare.seconds)
    people = world.waldur.people
    projects = [people.add_project(f"new {number}") for number in range(ORDERS)]
    for number, project in enumerate(projects):
        world.join(project, *(f"new{number}_{each}" for each in range(MEMBERS)))
        world.waldur.place_create_order(project, f"order {number}", limits={"cpu": 10, "mem": 2})
    yield _figure(f"{ORDERS} create orders x {MEMBERS}", _pass(world, "orders"), bare=bare)
    _pass(world, "members")


def _removal(world: World) -> Iterator[Figure]:
    what = f"{LEAVING * LEFT_ACCOUNTS} members out of {LEFT_ACCOUNTS} accounts"
    _leave(world, range(2 * LEFT_ACCOUNTS, 3 * LEFT_ACCOUNTS))
    bare = _bare_removals(world, range(2 * LEFT_ACCOUNTS, 3 * LEFT_ACCOUNTS))
    yield Figure(f"bare removals of {what}", bare.seconds)
    _leave(world, range(LEFT_ACCOUNTS))
    yield _figure(what, _pass(world, "members"), bare=bare)
    left = _count_leavers(world)
    assert left == LEAVING * LEFT_ACCOUNTS, f"{left} are there of those who stay"

    _leave(world, range(LEFT_ACCOUNTS, 2 * LEFT_ACCOUNTS))
    removal = measured_pass.start(world.config, "members")
    wait_until("the first removal", lambda: _count_leavers(world) < left, pause_s=0.2)
    world.waldur.place_create_order(world.projects[0], "order in between", limits={"cpu": 10, "mem": 2})
    between = measured_pass.result(measured_pass.start(world.config, "orders"))
    ended = "before" if removal.poll() is None else "after"
    removed = measured_pass.result(removal)
    assert _count_leavers(world) == 0, removed
    yield _figure(f"{what}, an order placed in between", removed)
    yield _figure("that order", between, f"; it ended {ended} the removal")


def _first_sync(world: World) -> Iterator[Figure]:
    part = FIRST_SYNC / BARE_SYNC
    loads = _bare_load(world, "c", accounts=BARE_SYNC)
    bare = f"{loads.seconds * part:.0f} s, by {BARE_SYNC} of them"
    yield Figure(
        f"bare loads of {FIRST_SYNC} accounts x {MEMBERS} and their tiers", loads.seconds * part, bare
    )
    what = f"first sync of {FIRST_SYNC} accounts x {MEMBERS}"
    added = _bare_additions(world, "c", accounts=BARE_SYNC)
    added = Bare(added.seconds * part, added.servers_s * part)
    yield Figure(
        f"bare `add user` of a {what}", added.seconds, f"{added.seconds:.0f} s, by {BARE_SYNC} of them"
    )
    for number, project in enumerate(world.projects[-FIRST_SYNC:]):
        world.join(project, *(f"joiner{number}_{each}" for each in range(MEMBERS)))
    yield _figure(what, _pass(world, "members"), bare=added)


# By the names by which a part of them is chosen.
MEASURED: Mapping[str, Callable[[World], Iterator[Figure]]] = {
    "idle": _idle,
    "orders": _orders,
    "removal": _removal,
    "sync": _first_sync,
}


def _figure(what: str, measured: measured_pass.Measured, more: str = "", *, bare: Bare = Bare(0.0)) -> Figure:
    return Figure(
        what,
        measured.seconds,
        f"{measured.line()}{more}",
        measured.longest,
        measured.longest_s,
        bare.seconds,
        measured.servers_s,
        bare.servers_s,
    )


def _pass(world: World, what: str) -> measured_pass.Measured:
    before_s = _servers_s(world)
    measured = measured_pass.result(measured_pass.start(world.config, what))
    return replace(measured, servers_s=_servers_s(world) - before_s)


def _servers_s(world: World) -> float:
    """Return how long the servers have used the processor, when they are quiet, or after ten seconds: slurmctld still
    works after a command has ended, and on a large cluster all the time.
    """
    used_s = [0.0]
    for _ in range(20):
        time.sleep(0.5)
        used_s.append(sum(processor_s(world.slurm.servers.pid(name)) for name in SERVERS))
        if used_s[-1] - used_s[-2] <= QUIET_S:
            break
    return used_s[-1]


def _leavers(number: int) -> list[str]:
    """Return who is in one project only to leave it."""
    return [f"leaver{number}_{each}" for each in range(LEAVING)]


def _leave(world: World, numbers: Iterable[int]) -> None:
    for number in numbers:
        for name in _leavers(number):
            world.waldur.people.remove_member(world.projects[number], name)


def _count_leavers(world: World) -> int:
    return _count(world, "user LIKE 'leaver%'")


def _count(world: World, which: str) -> int:
    """Count associations by a condition of SQL."""
    table = f"{world.slurm.cluster}_assoc_table"
    return int(world.slurm.sql(f"SELECT COUNT(*) FROM {table} WHERE {which} AND deleted = 0"))


def _bare(world: World, commands: Iterable[tuple[Sequence[str], str]]) -> Bare:
    """Run commands of sacctmgr, each with its input."""
    seconds, before_s = 0.0, _servers_s(world)
    for argv, stdin in commands:
        started_s = time.monotonic()
        world.slurm.ask("sacctmgr", "-i", *argv, stdin=stdin)
        seconds += time.monotonic() - started_s
    return Bare(seconds, _servers_s(world) - before_s)


def _bare_load(world: World, prefix: str, *, accounts: int) -> Bare:
    """Measure additive loads of the same rows, written by hand, ten accounts each."""
    files = []
    for first in range(0, accounts, ACCOUNTS_PER_LOAD):
        numbers = range(first, min(first + ACCOUNTS_PER_LOAD, accounts))
        customer = f"{prefix}_customer{first}"
        lines = [f"Cluster - '{world.slurm.cluster}'", "Parent - 'root'", f"Account - '{customer}'"]
        lines += [f"Parent - '{customer}'", *(f"Account - '{prefix}_project{number}'" for number in numbers)]
        for number in numbers:
            lines += [f"Parent - '{prefix}_project{number}'", f"Account - '{prefix}{number}'"]
        for number in numbers:
            lines += [f"Parent - '{prefix}{number}'"]
            lines += [f"User - '{prefix}{number}_{each}':Fairshare=parent" for each in range(MEMBERS)]
        files.append((("load", "/dev/stdin"), "\n".join(lines) + "\n"))
    return _bare(world, files)


def _bare_removals(world: World, numbers: Iterable[int]) -> Bare:
    """Measure a command for each account that leavers are in."""
    table, commands = f"{world.slurm.cluster}_assoc_table", []
    for number in numbers:
        names = f"leaver{number}\\_%"
        account = world.slurm.sql(
            f"SELECT DISTINCT acct FROM {table} WHERE user LIKE '{names}' AND deleted = 0"
        )
        users = ",".join(_leavers(number))
        where = (f"name={users}", f"account={account.strip()}", f"cluster={world.slurm.cluster}")
        commands.append((("remove", "user", "where", *where), ""))
    return _bare(world, commands)


def _bare_additions(world: World, prefix: str, *, accounts: int) -> Bare:
    """Measure a command for each account of a bare load that gets as many members again."""
    commands = []
    for number in range(accounts):
        users = ",".join(f"{prefix}{number}_new{each}" for each in range(MEMBERS))
        where = (f"name={users}", f"account={prefix}{number}", f"cluster={world.slurm.cluster}")
        commands.append((("add", "user", *where, "fairshare=parent"), ""))
    return _bare(world, commands)


def _plot(seconds: Mapping[str, Mapping[int, float]]) -> None:
    """Draw how each grows with the associations of a cluster, those of others and ours, without a script: the page
    shows it as a picture.
    """
    chart = pygal.XY(
        title="Seconds by associations on the cluster",
        x_title="associations",
        y_title="seconds",
        legend_at_bottom=True,
        legend_at_bottom_columns=2,
        js=[],
        logarithmic=True,
        truncate_legend=-1,
        width=1000,
        height=640,
    )
    for what, by_size in seconds.items():
        chart.add(what, sorted(by_size.items()))
    PLOT.write_bytes(chart.render())
