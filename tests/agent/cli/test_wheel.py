# SPDX-License-Identifier: MIT
"""A wheel holds all that the commands need, the simulated Waldur and the demo included; installed, it knows its own."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import sysconfig
import termios
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from rig.emulator import emulated_cluster
from rig.processes import wait_until
from rig.unit_process import UNITS, sections
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.operator_site import REPOSITORY

HOUSES = ("agent", "backends", "simulator", "tasks", "waldur_slurm")
# What is no module: files for a site.
SHIPPED = ("docs", "examples", "monitoring", "systemd")
# Of a checkout: the documents' own site, and files under the names and places of the reference.
LEFT_OUT = re.compile(r"docs/.*\.(py|css|yaml)|examples/docker-compose/.*|.*\.example")


def test_every_module_and_data_file_is_in_the_wheel() -> None:
    from setuptools import find_packages  # not imported where tests are only collected

    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = set(find_packages(str(REPOSITORY), include=built["packages"]["find"]["include"]))
    assert {"simulator.demo", "simulator.server", "simulator.mam"} <= packages
    shipped = {
        file
        for package in packages
        for folder in [REPOSITORY / package.replace(".", "/")]
        for pattern in ("*.py", *built["package-data"].get(package, ()))
        for file in folder.glob(pattern)
    }
    files = {
        file
        for house in HOUSES
        for file in (REPOSITORY / house).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert files - shipped == set()


def shell(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd="/", timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment of its own with the wheel in it; dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for house in (*HOUSES, *SHIPPED):
        shutil.copytree(REPOSITORY / house, source / house, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "beat_schedule.py",
        "flowerconfig.py",
        "manage.py",
        "requirements-site.lock",
    ):
        shutil.copy(REPOSITORY / file, source)
    uv = Path(sys.executable).with_name("uv")
    shell(
        *(uv, "build", "-q", "--wheel", "--offline", "--no-build-isolation"),
        *("--python", sys.executable, "-o", folder, source),
    )
    (wheel,) = folder.glob("*.whl")
    shell(uv, "venv", "-q", "--python", sys.executable, folder / "venv")
    python = folder / "venv" / "bin" / "python"
    shell(uv, "pip", "install", "-q", "--offline", "--no-deps", "--python", python, wheel)
    ours, theirs = Path(sysconfig.get_path("purelib")), site_packages(python)
    (theirs / "dependencies.pth").write_text(f"{ours}\n")
    # By which `make coverage` counts; read after the dependencies, of which it imports one.
    shutil.copy(ours / "a1_coverage.pth", theirs / "dependencies_coverage.pth")
    return python


def site_packages(python: Path) -> Path:
    return Path(shell(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def foreign(python: Path) -> list[str]:
    code = (
        "import json; from agent.host.packages import foreign_modules; print(json.dumps(foreign_modules()))"
    )
    found: list[str] = json.loads(shell(python, "-c", code))
    return found


def test_an_installed_wheel_runs_and_knows_its_files(installed: Path) -> None:
    assert shell(installed.with_name("waldur-site-cluster"), "--version").startswith(
        "waldur-site-cluster, version"
    )
    assert foreign(installed) == []


def test_what_a_site_needs_besides_modules_is_installed(installed: Path) -> None:
    share = installed.parents[1] / "share" / "waldur-site-cluster"
    wanted = {
        str(file.relative_to(REPOSITORY)): file
        for house in SHIPPED
        for file in (REPOSITORY / house).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    wanted |= {"requirements-site.lock": REPOSITORY / "requirements-site.lock"}
    missing = [
        name
        for name, file in wanted.items()
        if not LEFT_OUT.fullmatch(name)
        and not ((share / name).is_file() and (share / name).read_bytes() == file.read_bytes())
    ]
    assert missing == []


def test_unit_files_name_the_programs_and_documents_of_this_installation(
    installed: Path, tmp_path: Path
) -> None:
    program, config = installed.with_name("waldur-site-cluster"), tmp_path / "site.yaml"
    shell(program, "unit-files", tmp_path, "--config", config)
    units = sorted(tmp_path.glob("waldur-site*"))
    assert [unit.name for unit in units] == sorted(unit.name for unit in UNITS.glob("waldur-site*"))
    for unit in units:
        text = unit.read_text()
        (document,) = sections(unit)["Unit"]["Documentation"]
        assert Path(document.removeprefix("file://")).is_file()
        assert "/opt/waldur-site-cluster" not in text
        if unit.suffix == ".service":
            assert f"Environment=PATH={installed.parent}:" in text
            assert str(config) in text
    # Again it changes nothing; a file of the operator's is left alone, with all others.
    shell(program, "unit-files", tmp_path, "--config", config)
    units[0].write_text("# mine\n")
    refused = subprocess.run([program, "unit-files", tmp_path], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"{units[0].name}" in refused.stderr and "--force" in refused.stderr
    assert units[0].read_text() == "# mine\n" and str(config) in units[1].read_text()
    shell(program, "unit-files", tmp_path, "waldur-agent-report", "waldur-agent-order-process-legacy")
    modern, legacy = (
        sections(tmp_path / f"{name}.service")["Service"]["ExecStart"]
        for name in ("waldur-agent-report", "waldur-agent-order-process-legacy")
    )
    assert modern == ["/usr/bin/env waldur_site_agent -m report -c /etc/waldur/waldur-site-agent-config.yaml"]
    assert legacy[0].startswith("/bin/sh -c") and "-m order_process" in legacy[0]


def test_the_demo_without_the_emulator_says_the_line_that_brings_it(installed: Path, tmp_path: Path) -> None:
    """Before anything is started: it leaves no folder behind, and JSON has the sentence, too."""
    done = subprocess.run(
        [installed.with_name("waldur-site-cluster"), "demo", "--once", "--json"],
        capture_output=True, text=True, cwd="/", check=False, timeout=600,
        env={**os.environ, "TMPDIR": str(tmp_path), "PATH": "/bin"},
    )  # fmt: skip
    sentence = "the SLURM emulator is not installed: pip install 'waldur-site-cluster[demo]'"
    assert (done.returncode, done.stderr) == (1, f"error: {sentence}\n")
    assert json.loads(done.stdout)["faults"] == [sentence]
    assert list(tmp_path.iterdir()) == []


def is_reading(pid: int) -> bool:
    """Return whether a process is in a system call about its input: the number of the call, its first argument, ..."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[1:2] == ["0x0"]


def on_terminal(answers: Mapping[str, str], *words: object) -> tuple[int, str]:
    """Run a command on a terminal of its own, type each answer when its question stands there, and return the exit code
    and all that was seen.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir("/")
        os.execv(str(words[0]), [str(word) for word in words])
    seen, waiting = "", dict(answers)
    with suppress(OSError):  # the end of a terminal
        while text := os.read(terminal, 4096).decode():
            seen += text
            for question in [each for each in waiting if each in seen]:
                if question == "Token":  # what is typed before the echo is off is thrown away
                    wait_until("a hidden question", lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO)
                else:  # Python sees no Ctrl-C between the question and the read
                    wait_until("the read of an answer", lambda: is_reading(pid))
                os.write(terminal, waiting.pop(question).encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def test_init_asks_on_a_terminal_and_a_stop_leaves_nothing(
    installed: Path, tmp_path: Path, quick_emulator: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is not shown; Ctrl-C at its question, or at a file that is there, changes nothing."""
    _, environment = emulated_cluster(tmp_path)
    path = f"{quick_emulator}:/usr/bin:/bin"
    for name, value in {**environment, "PATH": path, "WALDUR_SITE_AGENT_STATE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    program, file = installed.with_name("waldur-site-cluster"), tmp_path / "site.yaml"
    with SimulatedWaldur() as waldur:
        init = (program, "init", "-c", file)
        code, seen = on_terminal({"Address of Waldur": f"{waldur.url}\n", "Token": "\x03"}, *init)
        assert (code, file.exists(), (tmp_path / "token").exists()) == (130, False, False), seen
        code, seen = on_terminal(
            {"Address of Waldur": f"{waldur.url}\n", "Token": f"{waldur.token()}\n"}, *init
        )
        assert (code, waldur.token() in seen) == (0, False), seen
        written = file.read_text()
        code, seen = on_terminal({"is there already. Replace it?": "\x03"}, *init)
        assert (code, file.read_text()) == (130, written), seen
        code, seen = on_terminal({"is there already. Replace it?": "n\n"}, *init)
        assert (code, file.read_text()) == (1, written), seen
        assert "the configuration is good" in shell(program, "config-check", "-c", file)


def test_files_of_another_package_are_reported(installed: Path, tmp_path: Path) -> None:
    """Another package with a folder `tasks` is unpacked over ours, and one with `backends` stands before it."""
    folder = site_packages(installed)
    other = folder / "other_tool-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-tool\nVersion: 1.0\n")
    (other / "RECORD").write_text("tasks/limits.py,,\n")
    (folder / "tasks" / "limits.py").write_text("LIMIT = 1\n")
    first = tmp_path / "backends" / "__init__.py"
    first.parent.mkdir()
    first.touch()
    (folder / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n")
    elsewhere, changed, shared = foreign(installed)
    assert elsewhere.startswith(f"`import backends` leads to {first}, and not to ours in {folder}; install")
    assert changed.startswith(f"tasks/limits.py in {folder} are not the files that were installed")
    assert shared.startswith("tasks/limits.py belong to the package other-tool as well")
