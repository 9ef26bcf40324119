# SPDX-License-Identifier: MIT
"""Clusters for tests of the backends: the real SLURM, the emulator of a newer release, and a stand-in MAM.

A module empties its cluster once; its tests then use names of their own, for a reset costs more than a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agent.state.marked_accounts import MarkedAccounts
from backends.base import Backend, BackendContext
from backends.lock import WriteLock
from backends.moab.backend import MoabBackend
from backends.moab.plugin import plugin as moab_plugin
from backends.slurm.backend import SlurmBackend
from backends.slurm.plugin import plugin
from rig.mam import quick_stand_in
from rig.parts import SLURM_SUITES, require
from rig.slurm_cluster import SlurmCluster
from rig.slurmrestd import Slurmrestd
from simulator.mam.install import StandIn
from tests.backends import emulator_rest

Connect = Callable[..., SlurmBackend]
NO_COMMANDS = "/nonexistent"
REAL_SLURMRESTDS = [pytest.param(generation, marks=pytest.mark.real_part) for generation in SLURM_SUITES]
EVERY_SLURMRESTD = pytest.mark.parametrize("slurmrestd_kind", ["emulator", *REAL_SLURMRESTDS], indirect=True)


@pytest.fixture
def unlimited_courtesy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who frees the lock waits until whoever waited for it has it, however slow a machine is."""
    monkeypatch.setattr("backends.lock.COURTESY_S", 600)


def connector(bin_path: str, state: Path, **always: object) -> Connect:
    def connect(**settings: object) -> SlurmBackend:
        raw = {
            "cluster_name": "test",
            "default_account_policy": "none",
            "slurm_bin_path": bin_path,
            **always,
            **settings,
        }
        return plugin.connect(plugin.parse(raw, "test").settings, BackendContext("0" * 32, state))

    return connect


@pytest.fixture(scope="module")
def module_environment() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as environment:
        yield environment


@pytest.fixture(scope="module")
def emptied_slurm(slurm_cluster: SlurmCluster) -> SlurmCluster:
    slurm_cluster.reset()
    return slurm_cluster


@pytest.fixture(scope="module")
def on_slurm(
    emptied_slurm: SlurmCluster,
    module_environment: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Connect:
    """Backends of the real SLURM, with these settings; all share one lock."""
    return by_commands(emptied_slurm, module_environment, tmp_path_factory.mktemp("slurm"))


def by_commands(slurm: SlurmCluster, environment: pytest.MonkeyPatch, state: Path) -> Connect:
    for name in ("SLURM_CONF", "PATH"):
        environment.setenv(name, slurm.env[name])
    return connector(str(slurm.bin_path), state)


@pytest.fixture(scope="module")
def on_emulator(
    module_environment: pytest.MonkeyPatch, quick_emulator: Path, tmp_path_factory: pytest.TempPathFactory
) -> Connect:
    """Backends of slurm-emulator (26.05), with a database of their own. It has no squeue, and needs none."""
    folder = tmp_path_factory.mktemp("emulator")
    module_environment.setenv("SLURM_EMULATOR_STATE_FILE", str(folder / "state.json"))
    module_environment.setenv("SLURM_EMULATOR_TIME_FILE", str(folder / "time.json"))
    module_environment.setenv("SLURM_EMULATOR_TIME_FOLLOW_WALL", "1")
    module_environment.setenv("SLURM_EMULATOR_CLUSTER_NAME", "test")
    return connector(str(quick_emulator), folder)


@pytest.fixture(scope="module")
def slurmrestds(
    request: pytest.FixtureRequest,
    module_environment: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], dict[str, Any]]]:
    """The way to slurmrestd of an emptied cluster: the real one of a generation, or `emulator` for slurm-emulator's
    (25.05, v0.0.43), which checks the token as well.
    """
    with ExitStack() as stack:

        @cache
        def access(kind: str) -> dict[str, Any]:
            if kind == "emulator":
                if find_spec("emulator") is None:
                    require("slurm-emulator")
                folder = tmp_path_factory.mktemp("rest")
                return stack.enter_context(emulator_rest.slurmrestd(folder, module_environment))
            server: Slurmrestd = request.getfixturevalue("real_slurmrestds")(kind)
            return server.access

        yield access


@pytest.fixture(scope="module")
def real_slurmrestds(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Slurmrestd]]:
    """The real slurmrestd of an emptied cluster of each generation."""
    with ExitStack() as stack:

        @cache
        def started(generation: str) -> Slurmrestd:
            cluster = request.getfixturevalue("slurm_clusters")(generation)
            cluster.reset()
            server = Slurmrestd(cluster)
            stack.callback(server.stop)
            server.start()
            return server

        yield started


@pytest.fixture(scope="module", params=REAL_SLURMRESTDS)
def real_slurmrestd(
    request: pytest.FixtureRequest, real_slurmrestds: Callable[[str], Slurmrestd]
) -> Slurmrestd:
    return real_slurmrestds(request.param)


@pytest.fixture(scope="module")
def slurmrestd_kind(request: pytest.FixtureRequest) -> str:
    """Which of `slurmrestds` a test runs on; see `EVERY_SLURMRESTD`."""
    return str(getattr(request, "param", "emulator"))


@pytest.fixture(scope="module")
def rest_access(slurmrestd_kind: str, slurmrestds: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The way to that slurmrestd."""
    return slurmrestds(slurmrestd_kind)


@pytest.fixture(scope="module")
def on_rest(rest_access: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Connect:
    """Backends of that slurmrestd."""
    return by_rest(rest_access, tmp_path_factory.mktemp("rest-state"))


def by_rest(access: dict[str, Any], state: Path, bin_path: str = NO_COMMANDS) -> Connect:
    """Return backends on a host whose commands of SLURM are in that folder."""
    return connector(bin_path, state, execution_mode="rest", rest_api=access)


@pytest.fixture
def lock(tmp_path: Path) -> WriteLock:
    return WriteLock(tmp_path, "c1", wait_s=0)


def on_stand_in(mam: StandIn, *, state: str = "state", **settings: object) -> MoabBackend:
    """A backend of this MAM, with these settings, its state in this folder."""
    raw = {"cluster_name": "test", "moab_bin_path": str(mam.bin), "manage_default_accounts": True, **settings}
    folder = mam.folder / state
    context = BackendContext(
        "0" * 32, folder, lock_dir=mam.folder / "host", marks=partial(MarkedAccounts, folder)
    )
    return moab_plugin.connect(moab_plugin.parse(raw, "test").settings, context)


@pytest.fixture(scope="module")
def mam(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """A stand-in MAM that refuses one account."""
    mam = quick_stand_in(tmp_path_factory.mktemp("mam"))
    refused = {
        "needle": "mam-create-account -a a_orphan",
        "code": 1,
        "stderr": "Account name is not allowed\n",
    }
    mam.faults(refused)
    return mam


@pytest.fixture(scope="module")
def on_moab(mam: StandIn) -> Callable[..., Backend]:
    """Backends of that MAM."""
    return lambda **settings: on_stand_in(mam, **settings)


@pytest.fixture(scope="module")
def on_closed_moab(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Backend]:
    """A MAM that does not let us see its funds."""
    mam = quick_stand_in(tmp_path_factory.mktemp("closed"))
    mam.faults(
        {"needle": "mam-list-funds", "code": 1, "stderr": "User waldur is not authorized to do this\n"}
    )
    return lambda: on_stand_in(mam)
