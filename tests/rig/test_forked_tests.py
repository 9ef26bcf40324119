# SPDX-License-Identifier: MIT
"""A run of tests in several processes: what pytest says of them, also of a process that ends."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from rig.processes import REPOSITORY

FIXTURES = """
import os, pytest
from pathlib import Path

@pytest.fixture(scope="session")
def service():
    yield os.environ["TEST_PROCESS"]
    Path(__file__).with_name("ended").touch()

@pytest.fixture(scope="session")
def broken_service():
    yield
    raise RuntimeError("it does not stop")
"""
FIRST = """
import os

def test_has_it(service, tmp_path):
    assert service in str(tmp_path)

def test_dies():
    os._exit(3)

def test_goes_on(service):
    assert service == os.environ["TEST_PROCESS"]
"""
SECOND = """
import warnings

def test_fails():
    print("what", "it", "printed")
    assert 1 == 2

def test_warns():
    warnings.warn("not for long")
"""
BROKEN = """
def test_it(broken_service):
    pass
"""


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(FIXTURES)
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    options = ("--processes=2", f"--rootdir={folder}", f"--basetemp={folder / 'temporary'}", *options)
    return subprocess.run(
        [*command, *options, str(folder)], capture_output=True, text=True, cwd=REPOSITORY, check=False
    )


def test_each_test_is_told_of_once_and_one_that_ends_its_process_has_failed(tmp_path: Path) -> None:
    done = run(tmp_path, first=FIRST, second=SECOND)
    assert re.search(r"^2 failed, 3 passed, 1 warning in", done.stdout, re.MULTILINE), (
        done.stdout + done.stderr
    )
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    for said in ("with exit code 3", "what it printed", "UserWarning: not for long"):
        assert done.stdout.count(said) == 1, said
    assert (tmp_path / "ended").exists()


def test_a_run_that_stops_at_the_first_failure_begins_nothing_after_it(tmp_path: Path) -> None:
    done = run(tmp_path, "-x", second=SECOND)
    assert "stopping after 1 failures" in done.stdout
    assert re.search(r"^1 failed in", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_a_fixture_that_fails_at_the_end_of_its_process_is_a_failure(tmp_path: Path) -> None:
    done = run(tmp_path, first=FIRST.replace("3", "0"), broken=BROKEN)
    assert done.stdout.count("RuntimeError: it does not stop") >= 1, done.stdout + done.stderr
    assert "with exit code 0" in done.stdout, "a test that ends its process has not passed"
    assert re.search(r"^2 failed, 3 passed in", done.stdout, re.MULTILINE), done.stdout + done.stderr
