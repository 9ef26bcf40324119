# SPDX-License-Identifier: MIT
"""Fixtures of all tests: the real parts live in rig, the simulated Waldur in simulator."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import tempfile
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from rig import run_servers
from rig.parts import SLURM_SUITES

if "PYTEST_XDIST_WORKER" not in os.environ:  # workers get it from their parent
    # Root's default is a folder of the host, where a real agent may be at work.
    locks = tempfile.TemporaryDirectory(prefix="locks-")
    atexit.register(locks.cleanup)
    os.environ["WALDUR_SITE_AGENT_LOCK_DIR"] = locks.name
    run_servers.begin()

# By default an example fails that takes longer than 200 ms, as any one does now and then on a busy machine.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")

# Where the tests run in a shell's background SIGINT is ignored, and so would be the Ctrl-C that some send to children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Collecting makes millions of objects, none of them garbage: looking for it takes 3 of the 7 s of each test process.
gc.disable()

pytest_plugins = ["backends.testing.plugin", "rig.fixtures"]

# In pytest's cache: how many seconds each test took when it was run last.
SECONDS = "tests/seconds"
# Of a test that was never run: more where it asks for a real part.
UNKNOWN_S, UNKNOWN_REAL_S = 0.05, 1.0
# Tests of a file that take so long on average mostly wait: for processes that start, for moments that come.
WAITS_S = 1.0
took: defaultdict[str, float] = defaultdict(float)
# A start of RabbitMQ takes 6 s of processor time, one of a newer SLURM 2 s, one of Chromium 1 s: one process gets all
# files that ask for the RabbitMQ of its session, one those that ask for its browser, and one all tests that run on the
# same newer SLURM.
COSTLY = {"RabbitMQ": ("rabbitmq: RabbitMq", "broker_url: "), "Chromium": ("browser: Browser",)}


def of_one_process(root: Path, test: str) -> str:
    """Return the name of what is run by one process of a run with several: a file, or parts of several of them."""
    newer = [generation for generation in SLURM_SUITES if f"slurm-{generation}" in test]
    return newer[0] if newer else of_file(root, test.partition("::")[0])


@cache
def of_file(root: Path, name: str) -> str:
    text = (root / name).read_text()
    return next((part for part, words in COSTLY.items() if any(word in text for word in words)), name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return of_one_process(config.rootpath, nodeid)

    return Together(config, log)


def known_seconds(config: pytest.Config) -> dict[str, float]:
    """What earlier runs took; all processes of one run know the same, whatever another run writes meanwhile."""
    if hasattr(config, "workerinput"):
        return config.workerinput[SECONDS]
    cache = getattr(config, "cache", None)
    return cache.get(SECONDS, {}) if cache else {}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[SECONDS] = known_seconds(node.config)


@pytest.hookimpl(trylast=True)  # when all have their markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes longest (`--no-loadscope-reorder` keeps this order): then no process is left alone with it
    in the end. What waits for others and what computes are spread over the run alike: side by side they take less time
    than one after the other.
    """
    known = known_seconds(config)
    seconds: defaultdict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for item in items:
        unknown_s = UNKNOWN_REAL_S if item.get_closest_marker("real_part") else UNKNOWN_S
        part = of_one_process(config.rootpath, item.nodeid)
        seconds[part] += known.get(item.nodeid, unknown_s)
        tests[part] += 1
    before_s, sums_s = {}, {True: 0.0, False: 0.0}
    waits = {part: seconds[part] >= WAITS_S * tests[part] for part in seconds}
    for part in sorted(seconds, key=lambda part: -seconds[part]):
        before_s[part] = sums_s[waits[part]]
        sums_s[waits[part]] += seconds[part]
    place = {part: before_s[part] / (sums_s[waits[part]] or 1) for part in seconds}
    items.sort(key=lambda item: place[of_one_process(config.rootpath, item.nodeid)])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    took[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = getattr(session.config, "cache", None)
    if cache and not hasattr(session.config, "workerinput"):  # the parent hears of all tests
        now = {test: round(seconds, 3) for test, seconds in took.items()}
        cache.set(SECONDS, {**known_seconds(session.config), **now})


def pytest_collection_finish() -> None:
    gc.freeze()
    # What is frozen counts for nothing, so all else would be looked through often: up to a tenth of a test's time.
    gc.set_threshold(5000)
    gc.enable()
