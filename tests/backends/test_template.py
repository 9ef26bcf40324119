# SPDX-License-Identifier: MIT
"""The template of a backend passes the contract as its author would run it; broken in any of these ways it does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from backends.base import BackendContext
from tests import REPOSITORY

TEMPLATE = REPOSITORY / "examples" / "backend"
BREAKS = {
    "test_unknown_is_never_absent": (
        'raise BackendUnavailable(f"the file cluster {self._file} cannot be read: {error}") from error',
        'state = {"accounts": {ROOT: {"parent": None, "limits": {}, "blocked": False, "members": []}}, "defaults": {}}',
    ),
    "test_what_is_below_an_account": ("if account and (below or account", "if False and (below or account"),
    "test_a_removal_leaves_every_member": ("del defaults[user]", "pass"),
    "test_limits_are_set": ('account["limits"] |= dict(after)', "pass"),
    "test_each_action_has_one_outcome": (
        "outcomes.append(Outcome(action, error))",
        "outcomes.append(Outcome(action))",
    ),
}


def contract(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{folder}", "PYTEST_ADDOPTS": ""}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TEMPLATE, tmp_path / "backend"))


def test_the_template_keeps_the_contract(copy: Path) -> None:
    run = contract(copy)
    assert run.returncode == 0, run.stdout
    assert "skipped" not in run.stdout


@pytest.mark.parametrize("case", BREAKS)
def test_a_broken_backend_fails_and_the_case_shows_what_it_compared(copy: Path, case: str) -> None:
    module = copy / "file_cluster.py"
    text, (whole, broken) = module.read_text(), BREAKS[case]
    assert text.count(whole) == 1
    module.write_text(text.replace(whole, broken))
    run = contract(copy, "-k", case)
    assert run.returncode == 1, run.stdout
    assert f"::{case}" in run.stdout
    assert "E         " in run.stdout


def test_an_offering_finds_it_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    plugin = EntryPoint("file", "file_cluster:plugin", "waldur_site_cluster.backends").load()
    assert plugin.parse({}, "offerings[0].backend_settings").problems
    settings = plugin.parse({"cluster_file": str(tmp_path / "larch.json")}, "").settings
    assert "is not on this host" in plugin.missing(settings)
    assert plugin.connect(settings, BackendContext("0" * 32, tmp_path)).cluster == "larch"


def test_the_page_shows_the_template_s_own_test() -> None:
    page = (REPOSITORY / "docs" / "write-a-backend.md").read_text()
    assert (TEMPLATE / "tests" / "test_contract.py").read_text() in page
    assert (TEMPLATE / "tests" / "conftest.py").read_text().splitlines()[-1] in page
