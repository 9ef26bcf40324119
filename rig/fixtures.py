# SPDX-License-Identifier: MIT
"""Fixtures of the real parts, imported by the test configuration as a pytest plugin.

A missing part skips the tests that ask for it (see `parts`); for Redis a package of the tests stands in.
"""

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.mosquitto import Mosquitto
from rig.parts import Asker, require
from rig.processes import RealPartError
from rig.rabbitmq import RabbitMq
from rig.redis_server import RedisServer
from rig.slapd import Slapd
from rig.slurm_cluster import SlurmCluster

CLUSTER_STARTS = 3
PARTS = {"slurm_cluster", "slurm", "redis_server", "slapd", "rabbitmq", "mosquitto"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that ask for a real part: see `parts.find_program`."""
    for item in items:
        if not PARTS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("real_part")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    Asker.unmarked = "" if item.get_closest_marker("real_part") else item.nodeid


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    Asker.unmarked = ""


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """The real SLURM of this test session; use `slurm` unless you clean up yourself."""
    require("slurm")
    # Not pytest's own temporary folder: it is closed to other users, whose rights some tests try.
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as folder:
        cluster = _started_cluster(Path(folder))
        yield cluster
        cluster.stop()


def _started_cluster(folder: Path) -> SlurmCluster:
    """Start a cluster. slurmdbd 22.05 sometimes ends while it makes its tables: then once more, from nothing."""
    for attempt in range(CLUSTER_STARTS):
        cluster = SlurmCluster(folder / str(attempt))
        try:
            cluster.start()
        except RealPartError as failure:
            if attempt + 1 == CLUSTER_STARTS:
                raise
            warnings.warn(f"the cluster is started again: {failure}", stacklevel=2)
        else:
            return cluster
    raise AssertionError


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> SlurmCluster:
    """The real SLURM with nothing in it but what is built in."""
    slurm_cluster.reset()
    return slurm_cluster


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The real Redis of this test session; tests that share it use `flush` or databases of their own."""
    with tempfile.TemporaryDirectory(prefix="redis-", ignore_cleanup_errors=True) as folder:
        server = RedisServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def slapd() -> Iterator[Slapd]:
    """A real OpenLDAP with an empty tree; it starts in a moment, so each test has its own."""
    require("slapd")
    with tempfile.TemporaryDirectory(prefix="slapd-", ignore_cleanup_errors=True) as folder:
        server = Slapd(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    """The real RabbitMQ of this test session (it takes 5 s to start); tests have vhosts of their own in it."""
    require("rabbitmq")
    with tempfile.TemporaryDirectory(prefix="rabbitmq-", ignore_cleanup_errors=True) as folder:
        server = RabbitMq(Path(folder), tls=True)
        server.start()
        yield server
        server.stop()


@pytest.fixture
def mosquitto() -> Iterator[Mosquitto]:
    """A real mosquitto without any session; it starts in a moment, so each test has its own."""
    require("mosquitto")
    with tempfile.TemporaryDirectory(prefix="mosquitto-", ignore_cleanup_errors=True) as folder:
        server = Mosquitto(Path(folder))
        server.start()
        yield server
        server.stop()
