# SPDX-License-Identifier: MIT
"""`run --once` and `status` as people read them: in a terminal of 80 columns, and what they say of a pass."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from rig import warm_python
from rig.processes import REPOSITORY
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite

RUN = ("run", "order_process", "--once")
SYNC = ("run", "membership_sync", "--once")
COLUMNS = 80


def in_terminal(*words: str) -> list[str]:
    """Return the lines that a command prints on stdout in a terminal."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    with subprocess.Popen(
        [warm_python.of_commands().program, str(REPOSITORY / "manage.py"), *words],
        env={**os.environ, "TERM": "dumb"},
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.DEVNULL,
    ):
        os.close(its)
        said = b""
        try:
            while some := os.read(ours, 65536):
                said += some
        except OSError:
            pass  # the other end is closed
    os.close(ours)
    return said.decode().replace("\r\n", "\n").splitlines()


def test_a_table_fits_the_terminal_and_long_messages_stand_whole_below_it(site: OperatorSite) -> None:
    order = site.place()
    site.waldur.people.deny("agent", "ORDER.APPROVE")
    lines = in_terminal(*RUN, "-c", site.configure())
    table = [line for line in lines if line.startswith(("┏", "┃", "┡", "│", "└"))]
    assert table and max(map(len, table)) <= COLUMNS
    (row,) = [line for line in table if line.startswith("│")]
    assert [cell.strip() for cell in row.strip("│").split("│")] == [order, "Create", "a_one", "stuck"]
    (message,) = [line for line in lines if line.startswith(f"order {order}: ")]
    assert message.endswith("(docs/rights.md lists all that are needed)")
    assert not any("\x1b" in line for line in lines[-1:])


def test_short_messages_stand_in_the_table(site: OperatorSite) -> None:
    site.place()
    lines = in_terminal(*RUN, "-c", site.configure())
    assert any("message" in line for line in lines)
    assert lines[-1].startswith("Test SLURM: 1 order, ")


def test_what_a_pass_has_brought_into_step_is_in_step(site: OperatorSite, command: Command) -> None:
    site.place("One")
    site.place("Two")
    file = site.configure(membership_sync_backend="slurm")
    assert command(*RUN, "-c", file).code == 0
    command(*SYNC, "-c", file)
    site.waldur.people.add_member(site.waldur.seed.project_uuids[0], "newcomer", account="newcomer")
    said = command(*SYNC, "-c", file)
    assert said.out.splitlines()[-1].startswith("Test SLURM: 2 resources, 2 in step (2 changed now), ")
    again = command(*SYNC, "-c", file)
    assert again.out.splitlines()[-1].startswith("Test SLURM: 2 resources, 2 in step, ")


def test_the_hour_without_removals_is_said_by_run_and_status(
    site: OperatorSite, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server of 2024 has no lists of service accounts, which is believed when two answers say so."""
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "redis://127.0.0.1:1/0")
    with SimulatedWaldur("2024") as waldur:
        old = OperatorSite(waldur, tmp_path / "old", site.environment, site.commands)
        old.folder.mkdir()
        old.place()
        file = old.configure(membership_sync_backend="slurm")
        assert command(*RUN, "-c", file).code == 0
        sentence = "no member is removed from any account: Waldur has no list_project_service_accounts; a gateway may"
        for _ in range(2):
            said = command(*SYNC, "-c", file)
            assert said.code == 0
            (line,) = [line for line in said.out.splitlines() if sentence in line]
            assert "so this is believed when an answer after 20" in line and "says the same" in line
        status = command("status", "-c", file).out.splitlines()
        assert sum(sentence in line for line in status) == 1
        place = next(n for n, line in enumerate(status) if line.startswith("  membership_sync: ok"))
        assert sentence in "".join(status[place + 1 : place + 3])
        page = tmp_path / "status.html"
        assert command("status", "-c", file, "--html", page).code == 0
        assert sentence in page.read_text()


def test_a_pass_that_an_error_ended_had_not_nothing_to_do(
    site: OperatorSite, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", "redis://127.0.0.1:1/0")
    file = site.configure(waldur_api_token="wrong-token-0123456789")
    for _ in range(2):
        assert command(*RUN, "-c", file).code == 1
    status = command("status", "-c", file).out.splitlines()
    ended = [line for line in status if line.startswith("  order_process: ended by an error")]
    assert len(ended) == 2
    assert not any("nothing to do" in line or "0 actions" in line for line in ended)
    assert sum("Invalid token" in line for line in status) == 1
