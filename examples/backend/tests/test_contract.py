# SPDX-License-Identifier: MIT
"""The backend keeps the contract of the agent."""

from pathlib import Path

import pytest
from file_cluster import FileBackend, FileSettings

from agent.core.model import Part
from backends.base import BULK_PARTS, BackendContext
from backends.testing.contract import BackendContract, Subject


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("cluster")

    def connect(file: Path = folder / "cluster.json", **_: object) -> FileBackend:
        return FileBackend(FileSettings(file), BackendContext("0" * 32, folder))

    connect().create()
    return Subject(
        connect=connect,
        away=lambda: connect(file=folder / "missing.json"),
        unhealthy=lambda: connect(file=folder / "missing.json"),
        cluster="cluster",
        product="file cluster",
        parts=BULK_PARTS - {Part.QOS, Part.USER_LIMITS},
        powers=frozenset({"keys"}),
    )


class TestContract(BackendContract):
    """All of it."""
