# SPDX-License-Identifier: MIT
"""The documents: generated pages are current, links lead somewhere, deployment files can be parsed."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").glob("*.md")])
UNITS = sorted((REPOSITORY / "systemd").glob("*.service"))


def test_generated_pages_are_current() -> None:
    pages = runpy.run_path(str(REPOSITORY / "docs" / "generate.py"))["PAGES"]
    for page, text in pages.items():
        assert (REPOSITORY / "docs" / page).read_text() == text(), f"{page}: run `make docs`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_the_compose_file_can_be_parsed_and_shows_no_port_to_others() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    assert {"redis", "worker", "beat", "flower"} <= set(services)
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_are_what_systemd_understands(unit: Path, tmp_path: Path) -> None:
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(
        [verify, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line and "Unknown" in line]
    assert complaints == []


def test_no_committed_file_names_a_package_host() -> None:
    """Hosts of package registries do not belong into the project: every site has its own way to them."""
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
