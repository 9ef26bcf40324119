# SPDX-License-Identifier: MIT
"""An operator's site, and commands run in this process where that is enough."""

from __future__ import annotations

import gc
import logging
import shutil
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path

import click
import pytest

from agent.cli.main import COMMANDS, cli, run
from rig.emulator import emulated_cluster
from rig.parts import require
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.cli.operator_site import REPOSITORY, Ended, OperatorSite, run_program
from tests.agent.cli.usage.browser import Browser

Command = Callable[..., Ended]
Script = Callable[..., Ended]
SCRIPTS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["scripts"]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One for all tests of pages."""
    require("chromium")
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def site(
    waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_emulator: Path
) -> OperatorSite:
    _, environment = emulated_cluster(tmp_path)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return OperatorSite(waldur, tmp_path, environment, quick_emulator)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs a command line in this process. The loggers are as before when the test is over."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in root.manager.loggerDict}

    def start(*words: str) -> Ended:
        capsys.readouterr()
        _forget_help_options()
        code = run([str(word) for word in words])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    yield start
    _forget_help_options()
    logging.captureWarnings(False)
    root.handlers, root.level = handlers, level
    for name in root.manager.loggerDict:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def _forget_help_options() -> None:
    """click keeps a command's help option as its first context named it; docs/generate.py makes other contexts."""
    for known in (cli, *(cli.get_command(click.Context(cli), name) for name in COMMANDS)):
        if known is not None:
            known._help_option = None


@pytest.fixture
def waiting(site: OperatorSite, command: Command) -> tuple[str, str]:
    """A configuration under which two terminations wait, and the id of their plan."""
    return two_terminations_wait(site, command)


@pytest.fixture(scope="session")
def held_once(
    tmp_path_factory: pytest.TempPathFactory, quick_emulator: Path
) -> tuple[OperatorSite, str, str]:
    """The same, once for all tests of a process, in a folder to copy; its Waldur is gone."""
    folder = tmp_path_factory.mktemp("held")
    _, environment = emulated_cluster(folder)
    with SimulatedWaldur(scenario=Scenario(members_per_project=2)) as waldur:
        site = OperatorSite(waldur, folder, environment, quick_emulator)
        return site, *two_terminations_wait(site, partial(run_program, env=environment))


@pytest.fixture
def held(held_once: tuple[OperatorSite, str, str], tmp_path: Path) -> tuple[str, str]:
    """What `waiting` is, for what asks neither Waldur nor the cluster."""
    site, config, plan = held_once
    shutil.copytree(site.folder, tmp_path, dirs_exist_ok=True)
    copied = tmp_path / Path(config).name
    copied.write_text(copied.read_text().replace(str(site.folder), str(tmp_path)))
    return str(copied), plan


def two_terminations_wait(site: OperatorSite, command: Command) -> tuple[str, str]:
    run = ("run", "order_process", "--once")
    for name in ("one", "two"):
        site.place(name)
    config = site.configure(policy={"max_removed_accounts": 1})
    assert command(*run, "-c", config).code == 0
    for record in site.waldur.site.state()["resources"]:
        site.waldur.orders.place_terminate(record["uuid"])
    said = command(*run, "--json", "-c", config)
    (offering,) = said.document()["offerings"]
    assert said.code == 0, "a plan that waits is no failure"
    (plan,) = offering["held"]
    assert {order["result"] for order in offering["orders"]} == {"waiting"}
    return config, plan["id"]


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Script:
    """Runs a script's function in this process, with the words of a command line."""

    def start(name: str, *words: str) -> Ended:
        monkeypatch.setattr("sys.argv", [f"/usr/bin/{name}", *words])
        module, _, function = SCRIPTS[name].partition(":")
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            getattr(import_module(module), function)()
        gc.enable()  # a script has it rest to its end
        said = capsys.readouterr()
        return Ended(int(str(ended.value.code)), said.out, said.err)

    return start
