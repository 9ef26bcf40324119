# SPDX-License-Identifier: MIT
"""Fixtures of the real parts, imported by the test configuration as a pytest plugin.

A missing part skips the tests that ask for it (see `parts`); for Redis a package of the tests stands in.
"""

import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

import pytest

from agent.core.errors import SiteAgentError
from rig import emulator
from rig.mosquitto import Mosquitto
from rig.parts import GENERATIONS, OWN_GENERATION, SLURM_SUITES, Asker, require
from rig.rabbitmq import RabbitMq
from rig.redis_server import OWN, RedisServer
from rig.site import REST_API
from rig.slapd import Slapd
from rig.slurm_cluster import SlurmCluster
from rig.slurmrestd import Slurmrestd

CLUSTER_STARTS = 3
# The SLURM that all tests run on, if one is chosen. Else it is this machine's own, or each where a test says so.
CHOSEN_GENERATION = os.environ.get("SLURM_GENERATION", "")
# Whether sites of tests go through slurmrestd of that SLURM.
BY_REST = os.environ.get("SLURM_BY_REST") == "1"
PARTS = {"slurm_cluster", "slurm", "redis_server", "slapd", "rabbitmq", "mosquitto"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that ask for a real part: see `parts.find_program`. Of slow suites a part runs on newer SLURM."""
    left_out = set() if os.environ.get("FULL_TESTS") == "1" else set(_left_out(items))
    if BY_REST:
        left_out |= {item for item in items if item.get_closest_marker("by_commands")}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if not PARTS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("real_part")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    Asker.unmarked = "" if item.get_closest_marker("real_part") else item.nodeid


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    Asker.unmarked = ""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the marker `every_slurm` on a cluster of each generation, where none is chosen for all tests."""
    is_wanted = metafunc.definition.get_closest_marker("every_slurm") and not CHOSEN_GENERATION
    if is_wanted and "slurm_cluster" in metafunc.fixturenames:
        names = [f"slurm-{generation}" for generation in GENERATIONS]
        metafunc.parametrize("slurm_cluster", GENERATIONS, indirect=True, scope="session", ids=names)


def _left_out(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that do not stand for their suite on a newer generation: of each file the first one does, and
    each so-many-th after it, each on one of these generations, turn by turn. Another file begins with another one.
    """
    newer, seen = list(SLURM_SUITES), Counter[tuple[str, str]]()
    for item in items:
        marker, call = item.get_closest_marker("every_slurm"), getattr(item, "callspec", None)
        generation = call.params.get("slurm_cluster") if call else None
        if marker is None or "one_of" not in marker.kwargs or generation not in newer:
            continue
        file = item.nodeid.partition("::")[0]
        turn, is_another = divmod(seen[file, generation], marker.kwargs["one_of"])
        seen[file, generation] += 1
        if is_another or newer[(turn + crc32(file.encode())) % len(newer)] != generation:
            yield item


@pytest.fixture(scope="session")
def slurm_clusters() -> Iterator[Callable[[str], SlurmCluster]]:
    """The real SLURM of each generation in this test session, started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def started(generation: str) -> SlurmCluster:
            require("slurm")
            if generation != OWN_GENERATION:
                require(f"slurm-{generation}")
            # Not pytest's own temporary folder: it is closed to other users, as whom slurmrestd runs.
            made = tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
            folder.chmod(0o755)
            cluster = _started_cluster(folder, generation)
            stack.callback(cluster.stop)
            return cluster

        yield started


@pytest.fixture(scope="session")
def slurm_cluster(
    request: pytest.FixtureRequest, slurm_clusters: Callable[[str], SlurmCluster]
) -> SlurmCluster:
    """The real SLURM of this test session; use `slurm` unless you clean up yourself."""
    return slurm_clusters(getattr(request, "param", CHOSEN_GENERATION or OWN_GENERATION))


def _started_cluster(folder: Path, generation: str) -> SlurmCluster:
    """Start a cluster. slurmdbd 22.05 sometimes ends while it makes its tables: then once more, from nothing."""
    for attempt in range(CLUSTER_STARTS):
        cluster = SlurmCluster(folder / str(attempt), generation=generation)
        try:
            cluster.start()
        except SiteAgentError as failure:
            if attempt + 1 == CLUSTER_STARTS:
                raise
            warnings.warn(f"the cluster is started again: {failure}", stacklevel=2)
        else:
            return cluster
    raise AssertionError


@pytest.fixture
def slurm(
    request: pytest.FixtureRequest, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> SlurmCluster:
    """The real SLURM with nothing in it but what is built in; commands of this process and its children find it."""
    slurm_cluster.reset()
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm_cluster.env[name])
    if BY_REST:
        monkeypatch.setenv(REST_API, json.dumps(request.getfixturevalue("slurmrestd").access))
    return slurm_cluster


@pytest.fixture(scope="session")
def slurmrestd(slurm_cluster: SlurmCluster) -> Iterator[Slurmrestd]:
    """The real slurmrestd of the SLURM of this test session."""
    server = Slurmrestd(slurm_cluster)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def quick_emulator() -> Path:
    """A folder with the commands of the emulated SLURM; variables of the environment lead each to its state."""
    if find_spec("emulator") is None:
        require("slurm-emulator")
    return emulator.commands()


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[Callable[[str], RedisServer]]:
    """The real Redis of each kind in this test session, started when it is first asked for: see `RedisServer`."""
    with ExitStack() as stack:

        @cache
        def started(kind: str) -> RedisServer:
            made = tempfile.TemporaryDirectory(prefix="redis-", ignore_cleanup_errors=True)
            server = RedisServer(Path(stack.enter_context(made)), kind=kind)
            server.start()
            stack.callback(server.stop)
            return server

        yield started


@pytest.fixture(scope="session")
def redis_server(redis_servers: Callable[[str], RedisServer]) -> RedisServer:
    """The real Redis of this test session; tests that share it use `flush` or databases of their own."""
    return redis_servers(OWN)


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
