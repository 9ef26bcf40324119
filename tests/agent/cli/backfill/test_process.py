# SPDX-License-Identifier: MIT
"""The loader as a process of its own: what others see of it, and how it ends when an operator ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.cli import reference
from agent.core.periods import Month
from rig.history import YEAR
from rig.processes import wait_until
from simulator.server.faults import Fault, FaultKind
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import REPOSITORY, run_program
from tests.agent.run.backfill.operator import Operator

MANAGE = [sys.executable, str(REPOSITORY / "manage.py"), "historical-usage", "--local"]
SCRIPT = "waldur_site_load_historical_usage"
MONTHS = YEAR[:4]
DATES = ("-s", "2024-01-01", "-e", "2024-04-30")
MARCH = ("-s", "2024-03-05", "-e", "2024-03-31")


class Loader:
    """A loader that runs, and what it has said so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / "loader.log"
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*MANAGE, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=REPOSITORY
            )

    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, words: str) -> None:
        wait_until(words, lambda: words in self.said(), self.process, self.log)


@pytest.fixture
def loaders() -> Iterator[list[Loader]]:
    started: list[Loader] = []
    yield started
    for loader in started:
        if loader.process.poll() is None:
            loader.process.kill()
        loader.process.wait()


@pytest.fixture
def config(operator: Operator) -> str:
    operator.token_file()
    return operator.configure(staff_token_file="staff-token")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """The reference's script in this process, for an end that comes before any work. Returns the exit code."""

    def run(*words: str) -> object:
        monkeypatch.setattr(sys, "argv", [SCRIPT, *words])
        with pytest.raises(SystemExit) as ended:
            reference.load_historical_usage()
        return ended.value.code

    return run


def stop_at(operator: Operator, month: int) -> None:
    """Waldur answers nothing when the totals of this month come."""
    fault = Fault(
        kind=FaultKind.DELAY, path="set_usage/", method="POST", latency_ms=60_000, skip=2 * month - 2
    )
    operator.waldur.inject(fault)


@pytest.mark.parametrize("form", ["--user-token=TOKEN", "-t TOKEN"])
def test_a_typed_token_is_not_in_the_list_of_processes(
    operator: Operator, loaders: list[Loader], form: str
) -> None:
    stop_at(operator, 1)
    words = form.replace("TOKEN", operator.token).split()
    loader = Loader(operator.folder, "-c", operator.configure(), *MARCH, *words)
    loaders.append(loader)
    loader.wait_for("Processing month 1/1: 2024-03")
    pid = loader.process.pid
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True)
    assert form.replace("TOKEN", "*" * len(operator.token)) in shown.stdout
    assert operator.token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert "it is blanked there now" in loader.said()
    assert operator.token not in loader.said()


def test_a_killed_loader_is_resumed_where_it_was(
    operator: Operator, loaders: list[Loader], config: str
) -> None:
    stop_at(operator, 3)
    loader = Loader(operator.folder, "-c", config, *DATES)
    loaders.append(loader)
    loader.wait_for("Processing month 3/4")
    loader.process.kill()
    loader.process.wait()
    operator.waldur.faults.clear()
    said = run_program("historical-usage", "--local", "-c", config, *DATES, "--resume", "--json")
    assert (said.code, said.document()["failures"]) == (0, 0)
    before = operator.counted().index("2024-03")
    assert operator.counted()[before:] in (
        [str(month) for month in (MONTHS[2], *MONTHS[2:])],
        [str(month) for month in MONTHS[2:]],
    )
    assert operator.counted()[:before] == ["2024-01", "2024-02"]
    assert all(operator.is_loaded(month) for month in MONTHS)


def test_ctrl_c_says_what_is_done(operator: Operator, loaders: list[Loader], config: str) -> None:
    stop_at(operator, 2)
    loader = Loader(operator.folder, "-c", config, *DATES)
    loaders.append(loader)
    loader.wait_for("Processing month 2/4")
    loader.process.send_signal(signal.SIGINT)
    assert loader.process.wait(600) == 130
    assert loader.said().endswith("warning: Stopped: 1 of 4 months are done. --resume goes on from here\n")


def test_the_reference_s_script_ends_with_0_though_a_month_failed(operator: Operator) -> None:
    config = operator.configure()
    operator.waldur.inject(Fault(path="set_usage", method="POST", status=400, body="no plan"))
    offering = ("-o", operator.waldur.seed.offering_uuid)
    said = run_program("-c", config, *offering, "--user-token", operator.token, *MARCH, program=SCRIPT)
    assert said.code == 0
    assert "error: 1 of 1 months failed:" in said.out
    assert operator.token not in said.out + said.err


def test_the_reference_s_script_ends_with_1_where_nothing_can_be_loaded(
    config: str, command: Command, script: Callable[..., object]
) -> None:
    assert script("-c", config, "-s", "2024-03-31", "-e", "2024-01-01") == 1


def test_the_reference_s_script_has_its_options(
    script: Callable[..., object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("--help") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"Usage: {SCRIPT} [OPTIONS]"
    for option in ("--user-token", "--no-staff-check", "--reconcile-stale", "--resource-backend-id"):
        assert option in said


def test_a_token_is_asked_for_without_an_echo(operator: Operator) -> None:
    terminal, inside = os.openpty()
    asking = subprocess.Popen(
        [*MANAGE, "-c", operator.configure(), *MARCH],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        cwd=REPOSITORY,
        start_new_session=True,
    )
    os.close(inside)
    said = b""
    while chunk := _read(terminal):
        said += chunk
        if said.endswith(b"Staff token: "):
            os.write(terminal, operator.token.encode() + b"\n")
    os.close(terminal)
    assert asking.wait(600) == 0, said
    assert b"Staff token" in said and operator.token.encode() not in said
    assert operator.is_loaded(Month(2024, 3))


def _read(terminal: int) -> bytes:
    """What came; nothing once the other side is closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
