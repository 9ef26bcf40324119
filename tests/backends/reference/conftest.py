# SPDX-License-Identifier: MIT
"""Plugins for the reference's interface, each in a virtual environment of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backends.base import BackendContext
from backends.reference.backend import ReferenceBackend
from backends.reference.child import Child, Hosted
from rig import plugin_venv

Plugged = Callable[..., ReferenceBackend]
Started = Callable[..., Child]
COMPONENTS = {"cpu": {"unit_factor": 60}, "gpu": {"unit_factor": 60}}


def hosted(venv: Path, settings: dict[str, Any] | None = None, secrets: tuple[str, ...] = ()) -> Hosted:
    return Hosted(plugin_venv.NAME, venv, settings or {}, COMPONENTS, secrets)


@pytest.fixture
def plugged(tmp_path: Path) -> Plugged:
    """Return the backend of a plugin with these methods."""

    def made(methods: str = "pass", *, before: str = "", **settings: Any) -> ReferenceBackend:
        venv = plugin_venv.make(tmp_path, methods, before=before)
        return ReferenceBackend(hosted(venv, settings), BackendContext("0" * 32, tmp_path))

    return made


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """Return the process of such a plugin, which ends with the test."""
    children: list[Child] = []

    def made(
        methods: str = "pass", *, before: str = "", secrets: tuple[str, ...] = (), **settings: Any
    ) -> Child:
        venv = plugin_venv.make(tmp_path, methods, before=before)
        children.append(Child(hosted(venv, settings, secrets), "UTC"))
        return children[-1]

    yield made
    for child in children:
        child.end()
