# SPDX-License-Identifier: MIT
"""Where the recorded facts about real servers are, for the judges that need them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY


def facts_dir() -> Path:
    """`WALDUR_FACTS_DIR`, else the folder `shared` next to the repository; it may not exist."""
    named = os.environ.get("WALDUR_FACTS_DIR")
    return Path(named) if named else REPOSITORY.parent / "shared"


def captures() -> list[dict[str, Any]]:
    """The recorded requests in the order they were made; none where there are no facts."""
    folder = facts_dir() / "waldur-captures"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*.json"))]


def openapi_file() -> Path:
    return facts_dir() / "reference" / "waldur-openapi-subset.yaml"


def skip_without(path: Path) -> None:
    if not path.exists():
        pytest.skip(f"no facts at {path}: set WALDUR_FACTS_DIR")
