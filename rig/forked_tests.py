# SPDX-License-Identifier: MIT
"""Run the tests in several processes (`--processes=N`), each a fork of the one that has collected them: collecting
takes 3.5 s of processor time, and is done once.

A process runs one group of tests after the other, and says of each what pytest reports. Groups are begun in the order
of their first tests. Where a process ends too early its test fails, and another goes on with the rest of the group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn
from warnings import WarningMessage

import pytest

# The number of this test process, for it and its children.
NUMBER = "TEST_PROCESS"
PR_SET_PDEATHSIG = 1


@dataclass
class TestProcess:
    """A test process as the one that has forked it sees it."""

    number: int
    pid: int
    # Of its group, those that it has not begun, and the one that it runs.
    left: list[int] = field(default_factory=list)
    running: int | None = None
    is_done: bool = False
    # What it could not go on for.
    failure: str = ""


class ForkedRun:
    """All tests of a session, run by forks of this process."""

    def __init__(self, session: pytest.Session, groups: Iterable[list[int]]) -> None:
        self._session, self._hook = session, session.config.hook
        self._groups = deque(groups)
        self._processes: dict[Connection, TestProcess] = {}

    def run(self, count: int) -> None:
        # Temporary folders of all processes are below one.
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # of pytest
        try:
            for number in range(min(count, len(self._groups))):
                self._fork(number)
            while self._processes:
                for each in wait(list(self._processes)):
                    if isinstance(each, Connection):
                        self._hear(each)
        finally:
            for process in self._processes.values():
                os.kill(process.pid, signal.SIGTERM)

    def _fork(self, number: int) -> None:
        ours, theirs = Pipe()
        # What is left in them would be written twice.
        self._session.config.get_terminal_writer().flush()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            for other in (ours, *self._processes):
                other.close()
            _be_test_process(self._session, theirs, number)
        theirs.close()
        self._processes[ours] = TestProcess(number, pid)

    def _hear(self, connection: Connection) -> None:
        process = self._processes[connection]
        try:
            what, *said = connection.recv()
        except (EOFError, ConnectionResetError):
            del self._processes[connection]
            self._end(process)
            return
        match what:
            case "next":
                process.left = self._groups.popleft() if self._groups else []
                process.is_done = not process.left
                _answer(connection, process.left)
            case "begun":
                process.running = process.left.pop(0)
                item = self._session.items[process.running]
                self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case "reported":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=said[0])
                self._hook.pytest_runtest_logreport(report=report)
            case "ended":
                item = self._session.items[process.running]
                self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                process.running = None
                if self._session.shouldfail or self._session.shouldstop:
                    self._groups.clear()
                    process.left = []
                    # It looks for this before each test.
                    _answer(connection, [])
            case "warned":
                warning, when, nodeid, location = said
                self._hook.pytest_warning_recorded.call_historic(
                    kwargs={
                        "warning_message": WarningMessage(*warning),
                        "when": when,
                        "nodeid": nodeid,
                        "location": location,
                    }
                )
            case "failed":
                process.failure = said[0]

    def _end(self, process: TestProcess) -> None:
        _, status = os.waitpid(process.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if process.is_done and code == 0:
            return
        where = f"test process {process.number}"
        if process.running is not None:
            where = self._session.items[process.running].nodeid
        self._fail(where, process.failure or f"the test process has ended meanwhile, with exit code {code}")
        if process.left:
            self._groups.appendleft(process.left)
        if self._session.shouldfail:
            self._groups.clear()
        if self._groups:
            self._fork(process.number)

    def _fail(self, where: str, why: str) -> None:
        location = (where, None, where)
        report = pytest.TestReport(where, location, {}, outcome="failed", longrepr=why, when="call")
        self._hook.pytest_runtest_logreport(report=report)


def _answer(connection: Connection, group: list[int]) -> None:
    with suppress(OSError):  # it may have ended
        connection.send(group)


class _Teller:
    """Says to the other process what pytest reports in this one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("reported", data))

    @pytest.hookimpl
    def pytest_warning_recorded(
        self, warning_message: WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        of = warning_message
        warning = (str(of.message), of.category, of.filename, of.lineno)
        self._connection.send(("warned", warning, when, nodeid, location))


def _be_test_process(session: pytest.Session, connection: Connection, number: int) -> NoReturn:
    code = 1
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ[NUMBER] = str(number)
        _separate(session.config, number)
        session.config.pluginmanager.register(_Teller(session.config, connection))
        _run(session, connection)
        code = 0
    finally:
        try:
            if code:
                connection.send(("failed", traceback.format_exc()))
        finally:
            # What is to happen at the end of a process is to happen at the end of the one that has collected.
            os._exit(code)


def _separate(config: pytest.Config, number: int) -> None:
    """Give this process an output of its own, which is nobody's, and a folder of its own."""
    plugins = config.pluginmanager
    plugins.unregister(name="terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    if capture.is_globally_capturing():
        # Both would write over each other's in the one file that they have.
        capture.stop_global_capturing()
        capture.start_global_capturing()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]  # of pytest
    factory._basetemp = factory.getbasetemp() / f"process{number}"
    factory._basetemp.mkdir(mode=0o700, exist_ok=True)


def _run(session: pytest.Session, connection: Connection) -> None:
    hook = session.config.hook
    for group in iter(partial(_next_group, connection), []):
        # After the last of a group all fixtures end but those of the session.
        following: list[Any] = [*(session.items[index] for index in group[1:]), session]
        for index, nextitem in zip(group, following, strict=True):
            if session.shouldfail or session.shouldstop or connection.poll():
                break
            connection.send(("begun",))
            hook.pytest_runtest_protocol(item=session.items[index], nextitem=nextitem)
            connection.send(("ended",))
    session._setupstate.teardown_exact(None)


def _next_group(connection: Connection) -> list[int]:
    connection.send(("next",))
    group: list[int] = connection.recv()
    return group


def run(session: pytest.Session, count: int, group_of: Callable[[str], str]) -> None:
    """Run the tests of a session that has collected them in so many processes; one process runs those for which
    `group_of` says the same of their ids. Raises session.Failed or session.Interrupted as pytest's own loop does.
    """
    groups: dict[str, list[int]] = {}
    for index, item in enumerate(session.items):
        groups.setdefault(group_of(item.nodeid), []).append(index)
    ForkedRun(session, groups.values()).run(count)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
