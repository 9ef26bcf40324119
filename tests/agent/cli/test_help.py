# SPDX-License-Identifier: MIT
"""Help, version and usage errors: what an operator reads first."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agent import __version__
from agent.cli.main import COMMANDS
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import PROGRAMS, REPOSITORY, run_program

FIRST_LINES = {
    "config-check": [
        "Usage: manage.py config-check [OPTIONS]",
        "",
        "  Check the configuration file and the environment. All problems are shown at",
        "  once; exit code 2 on errors.",
    ],
    "run": [
        "Usage: manage.py run [OPTIONS] MODE",
        "",
        "  Run one pass of MODE in this process, without a broker. Exit code 1 when",
        "  something needs a look, 2 when no offering has a backend for MODE.",
    ],
    "plan": [
        "Usage: manage.py plan [OPTIONS] MODE",
        "",
        "  Show what a pass of MODE would do. Reads Waldur and the cluster, changes",
        "  neither.",
    ],
    "load-components": [
        "Usage: manage.py load-components [OPTIONS]",
        "",
        "  Create or update the offering's components in Waldur. Components that only",
        "  Waldur has are left alone. In a pause and in mode `observe` it only shows",
        "  what it would change; exit code 1 when there is something.",
    ],
    "create-homedirs": [
        "Usage: manage.py create-homedirs [OPTIONS]",
        "",
        "  Make missing home directories of the offering's users on this host and set",
        "  their quotas. Exit code 1 when something failed; users whom this host does",
        "  not know wait, and are no failure.",
    ],
    "simulate": [
        "Usage: manage.py simulate [OPTIONS]",
        "",
        "  Run a simulated Waldur on loopback, with its events. Orders are placed",
        "  through /control/ (docs/simulated-waldur.md).",
    ],
    "demo": [
        "Usage: manage.py demo [OPTIONS]",
        "",
        "  Start a simulated Waldur with its events, a broker, an emulated cluster,",
        "  bridge, worker, beat, Flower and console, and place orders.",
    ],
}


HELP_AND_TABS = """
import sys
before = set(sys.modules)
import json, os
from agent.cli.main import cli, run
words = json.loads(sys.argv[1])
sys.argv[:] = ["manage.py"]
for each in words["helps"]:
    run(each)
for line in words["tabs"]:
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_MANAGE_PY_COMPLETE": "bash_complete"}
    os.environ.update(asked)
    try:
        run([])
    except SystemExit:
        pass
print(*set(sys.modules) - before)
"""


@pytest.mark.parametrize("option", ["--help", "-h"])
@pytest.mark.parametrize("name", FIRST_LINES)
def test_help_of_each_command(command: Command, name: str, option: str) -> None:
    said = command(name, option)
    lines = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert lines[: len(FIRST_LINES[name])] == FIRST_LINES[name]
    assert [line for line in lines if len(line) > 80] == []
    options = [line for line in lines if line.startswith("  -")]
    assert options, "no options are listed"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(command: Command, name: str) -> None:
    """An option's text begins on its own line or is the whole of the next one."""
    lines = command(name, "--help").out.partition("Options:\n")[2].splitlines()
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  -"):
            assert "  " in line[3:].strip() or after.startswith("      "), line


def test_all_known_commands_have_a_snapshot() -> None:
    assert set(FIRST_LINES) <= set(COMMANDS)


@pytest.mark.parametrize("mode_command", ["run", "plan"])
def test_help_names_the_modes(command: Command, mode_command: str) -> None:
    assert "MODE is one of: order_process" in command(mode_command, "--help").out


def test_the_list_of_commands() -> None:
    said = run_program("--help", is_real=True)
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(
        "Usage: manage.py [OPTIONS] COMMAND [ARGS]...\n\n  Site agent for Waldur: makes"
    )
    assert all(f"\n  {name} " in said.out for name in COMMANDS)


def test_version() -> None:
    said = run_program("--version", is_real=True)
    assert (said.code, said.out, said.err) == (0, f"waldur-site-cluster, version {__version__}\n", "")


def test_the_installed_program_calls_itself_by_its_name() -> None:
    said = run_program("run", "--help", program="waldur-site-cluster", is_real=True)
    assert said.out.startswith("Usage: waldur-site-cluster run [OPTIONS] MODE")


def test_every_help_and_tab_needs_click_and_no_other_library() -> None:
    """They answer at once, also where a part of the installation is broken."""
    helps = [["--help"], *([name, "--help"] for name in COMMANDS)]
    tabs = ["manage.py ", *(f"manage.py {name} --" for name in COMMANDS), "manage.py forget "]
    done = subprocess.run(
        [sys.executable, "-c", HELP_AND_TABS, json.dumps({"helps": helps, "tabs": tabs})],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.count("\nUsage: ") == len(helps) - 1
    assert "plain,unreported-usage" in done.stdout
    modules = done.stdout.splitlines()[-1].split()
    libraries = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert libraries == {"agent", "click", "simulator"}
    assert {"asyncio", "concurrent", "http", "multiprocessing", "sqlite3", "ssl"} & set(modules) == set()
    ours = [name for name in modules if name.startswith(("agent.", "simulator."))]
    assert len(ours) < 40, ours


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["runn"], "No such command 'runn'"),
        (["run"], "Missing argument 'MODE'"),
        (["run", "order_process", "--onze"], "No such option"),
        (
            ["run", "membership", "--once"],
            "Invalid value for 'MODE': 'membership' is not one of 'order_process', 'membership_sync', "
            "'report'.",
        ),
        (
            ["run", "order_process"],
            "`run order_process --once` runs one pass now. Passes that repeat are run by the services",
        ),
        (["plan", "order_process", "--json", "--commands"], "two ways to print one plan: choose one"),
        (["simulate", "--age", "1999"], "'1999' is not one of '2024', '8.0', '8.1'"),
    ],
)
def test_usage_errors(command: Command, words: list[str], sentence: str) -> None:
    said = command(*words)
    assert said.code == 2
    assert sentence in said.err
    assert said.err.startswith("Usage: manage.py")
    assert said.out == ""


def test_a_reader_who_has_seen_enough_is_no_fault() -> None:
    """`manage.py ... | head -1`"""
    line = f"{sys.executable} manage.py config-check -c /no/such/file.yaml --json | true"
    done = subprocess.run(["bash", "-c", line], cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert "Traceback" not in done.stderr
    assert "fault" not in done.stderr


def test_the_reference_script_has_its_own_help() -> None:
    said = run_program("--help", program="waldur_site_load_components", is_real=True)
    assert said.code == 0
    assert "usage: waldur_site_load_components" in said.out
    assert "order_process,report,membership_sync,event_process" in said.out
    assert (PROGRAMS / "waldur_site_load_components").exists()
