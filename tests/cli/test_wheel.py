# SPDX-License-Identifier: MIT
"""A wheel holds all that the commands need, the simulated Waldur and the demo included."""

from __future__ import annotations

import tomllib

from setuptools import find_packages

from tests.cli.operator_site import REPOSITORY

HOUSES = ("agent", "backends", "simulator", "tasks")


def test_every_module_and_data_file_is_in_the_wheel() -> None:
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
