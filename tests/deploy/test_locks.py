# SPDX-License-Identifier: MIT
"""The lock file of sites: what the package needs there, in the versions that were tested, and no emulator of SLURM."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rig.processes import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
DEVELOPERS, SITES = REPOSITORY / "requirements.lock", REPOSITORY / "requirements-site.lock"
DEMO = REPOSITORY / "requirements-demo.lock"
EMULATOR = "slurm-emulator"


def versions(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", lock.read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    found = (re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0] for each in requirements)
    return {re.sub(r"[._]", "-", name).lower() for name in found}


def test_a_site_gets_all_that_the_package_needs_as_it_was_tested() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = names(
        [*PROJECT["project"]["dependencies"], *extras["embedded"], *extras["apm"], *extras["oidc"]]
    )
    at_site, tested = versions(SITES), versions(DEVELOPERS)
    assert wanted <= at_site.keys()
    assert at_site.items() <= tested.items()


def test_no_emulator_and_no_tool_of_developers_comes_to_a_site() -> None:
    """Its `sacctmgr` would stand before SLURM's own on the PATH of the documents."""
    at_site = versions(SITES)
    assert EMULATOR in versions(DEVELOPERS) and EMULATOR not in at_site
    assert not names(PROJECT["dependency-groups"]["dev"]) & at_site.keys()
    assert EMULATOR not in names(PROJECT["project"]["optional-dependencies"]["embedded"])


def test_the_demo_gets_the_emulator_as_it_was_tested_besides_what_a_site_gets() -> None:
    for_demo = versions(DEMO)
    assert set(for_demo) == {EMULATOR, "setuptools"}
    assert for_demo.items() <= versions(DEVELOPERS).items()


@pytest.mark.parametrize("lock", [DEVELOPERS, SITES, DEMO], ids=lambda lock: lock.name)
def test_a_lock_names_no_host(lock: Path) -> None:
    assert "://" not in lock.read_text()


def test_the_documents_install_from_the_lock_of_sites() -> None:
    text = (REPOSITORY / "docs" / "install.md").read_text()
    assert "--require-hashes -r requirements-site.lock" in text
    assert "-r requirements.lock" not in text
