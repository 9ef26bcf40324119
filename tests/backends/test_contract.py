# SPDX-License-Identifier: MIT
"""Every backend of ours keeps the contract that authors of others test theirs by."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from agent.core.actions import CancelJobs, CreateQos, DeleteAccount, SetLimits
from agent.core.errors import CommandFailed, NotEmpty, PlanRefused
from agent.core.model import Account, Part
from agent.core.periods import Month
from backends.base import BULK_PARTS, Backend
from backends.moab.commands import NotInMoab
from backends.slurm.costs import Costs
from backends.slurm.rest.client import RequestRefused
from backends.testing.contract import (
    CUSTOMER,
    PROJECT,
    BackendContract,
    Subject,
    Writes,
    join,
    leave,
    new,
)
from backends.testing.memory import MemoryBackend, MemoryCluster, empty_cluster, slurm_settings
from rig import job_rows
from rig.job_rows import JobRow
from rig.mam import quick_stand_in
from rig.parts import GENERATIONS, SLURM_SUITES
from rig.processes import free_ports
from rig.slurm_cluster import SlurmCluster
from simulator.mam.install import StandIn
from tests.backends.conftest import by_commands, by_rest, on_stand_in
from tests.backends.slurm.stand_in import OUTAGES

Connect = Callable[..., Backend]
Use = Callable[[str, str], None]


def ran(cluster: SlurmCluster, account: str, user: str) -> None:
    """An hour on one CPU that has ended, or what there is of it in this month."""
    end = datetime.now(UTC)
    start = max(end - timedelta(hours=1), Month.of(end).start(UTC))
    job_rows.add(
        cluster, [JobRow(account, user, start.replace(microsecond=0), start + timedelta(seconds=60))]
    )


def emulated(programs: Path, account: str, user: str) -> None:
    """Two hours on a node."""
    subprocess.run(
        [programs / "slurm-emulator"],
        input=f"usage_inject {user} 2 {account}\nquit\n", text=True, check=True, capture_output=True,
    )  # fmt: skip


def without_server(folder: Path) -> str:
    """A folder of SLURM's commands that say what the real ones say while slurmdbd is away."""
    for name in ("sacctmgr", "sacct", "squeue", "sreport"):
        (folder / name).write_text(f"#!/bin/sh\necho '{OUTAGES[0]}' >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    return str(folder)


def without_slurmdbd(cluster: SlurmCluster, connect: Connect, folder: Path) -> Callable[[], Backend]:
    """Make backends of the cluster's own commands that look for slurmdbd where none is; where those are in a root of
    their own, and read its configuration, of stand-ins.
    """
    if cluster.root is not None:
        return partial(connect, slurm_bin_path=without_server(folder))
    conf = folder / "slurm.conf"
    text = Path(cluster.env["SLURM_CONF"]).read_text()
    port = f"AccountingStoragePort={free_ports(1)[0]}"
    conf.write_text(re.sub("(?m)^AccountingStoragePort=.*", port, text))
    return partial(connect, command_prefix=["env", f"SLURM_CONF={conf}"])


def slurm(
    connect: Connect,
    away: Callable[[], Backend],
    writes: Writes,
    use: Use | None,
    *,
    cluster: str = "test",
    reads: int = 3,
) -> Subject:
    return Subject(
        connect=connect,
        away=away,
        use=use,
        unhealthy=lambda: connect(default_account="gone", root_account="root"),
        cluster=cluster,
        members={"root": {"root"}},
        limit_names=frozenset({"cpu", "mem", "gres/gpu"}),
        parts=BULK_PARTS - {Part.QOS},
        new_limits={"cpu": 600, "mem": 2048},
        limit_changes=(
            {"cpu": 100, "mem": 2000},
            {"cpu": 50},
            {"cpu": 2_000_000, "mem": 1025},
            {"cpu": 0, "gres/gpu": 5},
        ),
        settings=(
            {},
            {"default_account_policy": "individual", "qos_management": {"enabled": True}},
            {"parent_account": "root", "default_partition": "main"},
            {"qos_enforcement_enabled": True, "enforce_offering_qos": True},
        ),
        notes=2,
        good=(
            join("a_mix", "kim"),
            SetLimits(account="a_mix", after=(("cpu", 5),)),
            CreateQos(account="q_mix"),
            CancelJobs(account="a_none"),
            leave("a_none", "kim"),
        ),
        bad=(
            new("a_orphan", "nosuch"),
            join("a_orphan", "lea"),
            new("a,b"),
            join("a_mix", "x[1-3]"),
            SetLimits(account="a_mix", after=(("bogus", 1), ("cpu", 7))),
            DeleteAccount(account=PROJECT, parent=CUSTOMER),
        ),
        errors=frozenset({CommandFailed, PlanRefused, NotEmpty}),
        powers=frozenset({"partitions", "moves", "qos", "usage"}),
        reads=reads,
        writes=writes,
    )


def slurm_writes(tree: int) -> Writes:
    many = {
        "nothing": 0,
        "the same new limits of many accounts": 1,
        "many members of one account": 1,
        "the same members of many accounts": 1,
        "the same leavers of many accounts": 1,
        "names that cannot be": 0,
    }
    return Writes(tree=tree, joins=2, alike=2, deletions=2, many=many)


def moab(connect: Connect, unhealthy: Callable[[], Backend], mam: StandIn, silent: StandIn) -> Subject:
    """On a MAM that refuses the account `a_orphan`. It is asked name by name."""
    many = {
        "nothing": 0,
        "the same new limits of many accounts": 3,
        "many members of one account": 20,
        "the same members of many accounts": 10,  # in the first account they are already
        "the same leavers of many accounts": 10,
        "names that cannot be": 0,
    }
    return Subject(
        connect=connect,
        away=lambda: on_stand_in(silent),
        unhealthy=unhealthy,
        use=lambda account, user: mam.charge(account, user, "12.75", datetime.now(UTC)),
        powers=frozenset({"usage"}),
        product="MOAB",
        members={},
        parents={"p_tree": "root", "a_tree": "p_tree"},
        parts=BULK_PARTS - {Part.USER_LIMITS},
        limit="deposit",
        settings=(
            {},
            {"deactivate_when_paused": True},
            {"default_account": "users"},
            {"deactivate_when_downscaled": True, "manage_default_accounts": False},
        ),
        notes=3,
        good=(
            join("a_mix", "kim"),
            SetLimits(account="a_mix", after=(("deposit", 5),)),
            leave("a_none", "kim"),
        ),
        bad=(
            new("a_orphan"),
            join("a_orphan", "lea"),
            new("a,b"),
            join("a_mix", "x,y"),
            SetLimits(account="a_mix", after=(("bogus", 1), ("deposit", 7))),
            DeleteAccount(account=PROJECT, parent=CUSTOMER),
            CreateQos(account="q_mix"),
            CancelJobs(account="a_mix"),
        ),
        errors=frozenset({CommandFailed, PlanRefused, NotEmpty, NotInMoab}),
        reads=3,
        # Of the tree: two accounts with a fund each, a deposit, two members.
        writes=Writes(tree=7, joins=3, alike=4, deletions=6, many=many),
    )


def memory() -> Subject:
    """Each action that it tries is a write."""
    root = Account("root", None, qos=frozenset({"normal"}), default_qos="normal")
    cluster = MemoryCluster(replace(empty_cluster(), accounts={"root": root}))
    cluster.carry_out(join("root", "root"))
    many = {
        "nothing": 0,
        "the same new limits of many accounts": 3,
        "many members of one account": 20,
        "the same members of many accounts": 15,
        "the same leavers of many accounts": 10,
        "names that cannot be": 2,
    }

    def use(account: str, user: str) -> None:
        users = cluster.counted.setdefault(str(Month.of(datetime.now(UTC))), {}).setdefault(account, {})
        users[user] = {"cpu": users.get(user, {}).get("cpu", 0) + 3600}

    def away() -> Backend:
        backend = MemoryBackend(slurm_settings(), on=cluster)
        backend.outage = lambda _: True
        return backend

    return slurm(
        lambda **settings: MemoryBackend(slurm_settings(**settings), on=cluster),
        away,
        Writes(tree=6, joins=8, alike=4, deletions=3, many=many),
        use,
        cluster="memory",
        reads=1,
    )


def rest(connect: Connect, away: Callable[[], Backend], use: Use, *, asks: bool) -> Subject:
    """`asks`: the first request asks for the version. Each account that goes needs a request of its own: its record
    belongs to all clusters.
    """
    kinds = slurm_writes(tree=6)
    subject = slurm(connect, away, replace(kinds, deletions=5), use, reads=2 + asks)
    errors = frozenset({RequestRefused, PlanRefused, NotEmpty})
    # Without the settings that `rest` refuses.
    return replace(subject, errors=errors, settings=subject.settings[:2])


# slurmrestd by the newest version of its API that both know, and by the oldest that the agent knows.
REAL = (
    *(f"slurm@{generation}" for generation in GENERATIONS),
    *(f"slurmrestd@{generation}" for generation in SLURM_SUITES),
    "slurmrestd@24.11 v0.0.40",
)
KINDS = [
    *(pytest.param(kind, marks=pytest.mark.real_part) for kind in REAL),
    *("slurm-emulator", "slurmrestd@emulator", "moab", "memory"),
]


@pytest.fixture(scope="module", params=KINDS)
def subject(request: pytest.FixtureRequest) -> Subject:
    product, _, server = request.param.partition("@")
    folder = request.getfixturevalue("tmp_path_factory").mktemp("away")
    match product:
        case "slurm":
            cluster = request.getfixturevalue("slurm_clusters")(server)
            cluster.reset()
            environment = request.getfixturevalue("module_environment")
            connect = by_commands(
                cluster, environment, request.getfixturevalue("tmp_path_factory").mktemp("state")
            )
            # One command asks, one loads.
            reads = 3 + cluster.refused_reads
            away = without_slurmdbd(cluster, connect, folder)
            return slurm(connect, away, slurm_writes(tree=2), partial(ran, cluster), reads=reads)
        case "slurm-emulator":
            # Asked for places, lineages and default associations first, which it does not know.
            use = partial(emulated, request.getfixturevalue("quick_emulator"))
            on_emulator = request.getfixturevalue("on_emulator")
            away = partial(on_emulator, slurm_bin_path=without_server(folder))
            return slurm(on_emulator, away, slurm_writes(tree=6), use, reads=6)
        case "slurmrestd":
            server, _, version = server.partition(" ")
            access = {**request.getfixturevalue("slurmrestds")(server), "api_version": version}
            is_real = server != "emulator"
            if is_real:  # another version of its API was tried on it before
                request.getfixturevalue("slurm_clusters")(server).reset()
            use = (
                partial(ran, request.getfixturevalue("slurm_clusters")(server))
                if is_real
                else partial(emulated, request.getfixturevalue("quick_emulator"))
            )
            state = request.getfixturevalue("tmp_path_factory").mktemp("state")
            closed = {**access, "url": f"http://127.0.0.1:{free_ports(1)[0]}"}
            return rest(by_rest(access, state), by_rest(closed, state), use, asks=not version)
        case "moab":
            kinds = [request.getfixturevalue(name) for name in ("on_moab", "on_closed_moab", "mam")]
            silent = quick_stand_in(folder)
            silent.faults({"needle": "mam-", "code": 1, "stderr": "no server\n"})
            return moab(*kinds, silent)
        case _:
            return memory()


@pytest.fixture(autouse=True)
def keeps_its_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a busy machine held up does not make the next ones carry less."""
    monkeypatch.setattr(Costs, "note", lambda *_: None)


class TestContract(BackendContract):
    """Of each kind."""
