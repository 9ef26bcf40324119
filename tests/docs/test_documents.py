# SPDX-License-Identifier: MIT
"""The documents: generated pages are current, no key of the reference is ignored, links lead somewhere, deployment
files can be parsed.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import REPOSITORY

DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])


@cache
def generate() -> dict[str, Any]:
    """The module, which keeps what it has found out about the keys of the reference."""
    return runpy.run_path(str(REPOSITORY / "docs" / "generate.py"))


def test_generated_pages_are_current() -> None:
    for page, text in generate()["PAGES"].items():
        assert (REPOSITORY / "docs" / page).read_text() == text(), f"{page}: run `make docs`"


def test_no_key_of_the_reference_is_ignored() -> None:
    rows = generate()["REFERENCE"]["rows"]()
    counts = Counter((backend, str(fate)) for row in rows for backend, fate in row.fates.items())
    ignored = [
        f"{b}: {row.place}: {row.key}" for row in rows for b, fate in row.fates.items() if fate == "ignored"
    ]
    assert ignored == []
    assert all(counts[backend, "works"] > 150 for backend in ("SLURM", "slurmrestd", "MOAB"))
    assert all(row.said[b] for row in rows for b, fate in row.fates.items() if fate != "works")


@pytest.mark.parametrize(("key", "value"), [("no_such_key", True), ("stomp_ws_hots", "x")])
def test_an_unknown_key_counts_as_ignored(key: str, value: object) -> None:
    """Or the table could not fail."""
    module = generate()["REFERENCE"]
    effects = [module["_effect"]("SLURM", "offerings[0]", {}, keys) for keys in ({}, {key: value})]
    assert module["_difference"]("offerings[0]", key, *effects, "") == (module["Fate"].IGNORED, "")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_tests_and_files_that_the_page_on_security_names_are_there() -> None:
    page = (REPOSITORY / "docs" / "security.md").read_text()
    tests = re.findall(r"`(tests/[^`]+)::(test_\w+)`", page)
    assert len(tests) >= 19
    for file, name in tests:
        assert f"\ndef {name}(" in (REPOSITORY / file).read_text(), f"{file}::{name}"
    for file in re.findall(r"`((?:agent|backends|tasks)/[^`]+\.py)`", page):
        assert (REPOSITORY / file).is_file(), file


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize(("words", "starts"), [("beat", True), ("flower", True), ("worker", False)])
def test_beat_and_flower_start_where_the_tokens_are_for_root_only(words: str, starts: bool) -> None:
    script = (
        "import os, sys; import tasks.current; from agent.run.service import configuration\n"
        "configuration.checked(None, os.environ)  # imports what the other user may not be able to read\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "print(len(tasks.current.settings().offerings))"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        token, config = Path(folder) / "token", Path(folder) / "site.yaml"
        token.write_text("t0ken")
        token.chmod(0o600)
        config.write_text(yaml.safe_dump({"offerings": [{
            "name": "One", "waldur_api_url": "https://waldur.example.com/api/", "waldur_offering_uuid": "e" * 32,
            "waldur_api_token_file": str(token), "backend_type": "slurm", "order_processing_backend": "slurm",
        }]}))  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", script, "-A", "tasks", words], cwd=REPOSITORY, check=False, text=True,
            capture_output=True, timeout=600, env={**os.environ, "WALDUR_SITE_AGENT_CONFIG": str(config)},
        )  # fmt: skip
    assert (done.returncode, done.stdout) == ((0, "1\n") if starts else (2, "")), done.stderr
    assert starts or "cannot read" in done.stderr


def test_no_committed_file_names_a_package_host() -> None:
    """Hosts of package registries do not belong into the project: every site has its own way to them."""
    listed = b""
    if shutil.which("git"):
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=False
        ).stdout
    if not listed:
        pytest.skip("not a git checkout")
    hosts = re.compile(r"(pypi|pythonhosted|npmjs|registry\.npm|deb\.debian)\.(org|com)", re.IGNORECASE)
    named = [
        name
        for name in listed.decode().split("\0")
        if (REPOSITORY / name).is_file() and hosts.search((REPOSITORY / name).read_text(errors="replace"))
    ]
    assert named == []
