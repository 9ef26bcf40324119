# SPDX-License-Identifier: MIT
"""The template of a backend passes the contract as its author would run it; with any of these mistakes it does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from backends.base import BackendContext
from tests import REPOSITORY

TEMPLATE = REPOSITORY / "examples" / "backend"
# By the case of the contract that fails: what is written in the place of what.
MISTAKES = {
    "test_unknown_is_never_absent": (
        'raise BackendUnavailable(f"the file cluster {self._file} cannot be read: {error}") from error',
        'state = {"accounts": {ROOT: {"parent": None, "limits": {}, "blocked": False, "members": []}}, "defaults": {}}',
    ),
    "test_a_grown_cluster_is_read": ("self._file.write_text(json.dumps(state))\n        return", "return"),
    "test_one_bad_action_is_found": (
        "outcomes.append(Outcome(action, error))",
        "outcomes.append(Outcome(action))",
    ),
    "test_a_name_that_is_none": ("if not NAME.fullmatch(name):", "if not name:"),
    "test_what_is_below_an_account": ("if account and (below or account", "if False and (below or account"),
    "test_what_the_cluster_cannot_keep": ("of_host = True", "of_host = False"),
    "test_limits_are_set": ("|= dict(after)", "|= {name: value * 60 for name, value in after}"),
    "test_members_come_twice": ('account["members"].remove(user)', "pass"),
    "test_an_allocation_is_made": (
        "accounts.setdefault(name, {",
        "if account:\n                raise BackendError('is there')\n            accounts.setdefault(name, {",
    ),
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TEMPLATE, tmp_path / "backend"))


def test_the_template_keeps_the_contract_and_one_mistake_in_it_is_one_failure(copy: Path) -> None:
    """Each mistake has a module and a test of its own, all in one run; the failure shows what was compared."""
    module, test = copy / "file_cluster.py", copy / "tests" / "test_contract.py"
    text, test_text = module.read_text(), test.read_text()
    for number, (whole, broken) in enumerate(MISTAKES.values()):
        assert text.count(whole) == 1, whole
        (copy / f"file_cluster{number}.py").write_text(text.replace(whole, broken))
        (copy / "tests" / f"test_contract{number}.py").write_text(
            test_text.replace("from file_cluster import", f"from file_cluster{number} import")
        )
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfEs"],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{copy}", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    failed = re.findall(
        r"^(?:FAILED|ERROR) tests/test_contract(\d*).py::TestContract::(\w+)", run.stdout, re.M
    )
    wanted = {str(number): case for number, case in enumerate(MISTAKES)}
    found = {number: next((c for c in MISTAKES if case.startswith(c)), case) for number, case in failed}
    assert (len(failed), found) == (len(wanted), wanted), run.stdout
    assert re.search(r"^E +create account a,b below p_proj: done$", run.stdout, re.M)
    assert re.search(r"^SKIPPED .*: not tried: test_members_come_twice\w* failed$", run.stdout, re.M)


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
