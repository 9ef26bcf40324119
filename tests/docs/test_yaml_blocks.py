# SPDX-License-Identifier: MIT
"""Every piece of configuration of a document is taken by `config-check`, alone or in its place in a file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config.model import Severity
from agent.run.service import configuration
from rig import plugin_venv
from tests import REPOSITORY

DOCS = REPOSITORY / "docs"
WHOLE = DOCS / "getting-started.md"
# Where a piece belongs that does not begin at the root; what is none of these belongs into `backend_settings`.
OF_THE_ROOT = {
    "offerings",
    "policy",
    "broker_url",
    "state_dir",
    "console",
    "log_shipping",
    "global_proxy",
    "sentry_dsn",
    "timezone",
}
OF_AN_OFFERING = {"backend_settings", "backend_components", "order_hook", "backend_type"}
# Files of a site that `config-check` reads.
TOKEN = re.compile(r"/etc/waldur/token\b")
VENV = "/opt/waldur-plugins"


def blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    for page in sorted(DOCS.glob("*.md")):
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.M | re.S)):
            yield f"{page.stem}-{number}", yaml.safe_load(textwrap.dedent(block))


def whole() -> dict[str, Any]:
    return next(deepcopy(tree) for name, tree in blocks() if name == f"{WHOLE.stem}-0")


def in_its_place(piece: dict[str, Any]) -> dict[str, Any]:
    """A whole file with this piece in it."""
    if "offerings" in piece:
        return piece
    tree = whole()
    (offering,) = tree["offerings"]
    if piece.keys() <= OF_THE_ROOT:
        return {**tree, **piece}
    if any(key in OF_AN_OFFERING or key.endswith("_backend") for key in piece):
        own = {} if piece.get("backend_type") == "moab" else offering["backend_settings"]
        settings = {**own, **piece.get("backend_settings", {})}
        offering |= {**piece, "backend_settings": settings}
    else:
        offering["backend_settings"] |= piece
    return tree


@pytest.mark.parametrize(("name", "piece"), [pytest.param(*each, id=each[0]) for each in blocks()])
def test_a_piece_of_configuration_is_taken(name: str, piece: dict[str, Any], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken")
    token.chmod(0o600)
    file = tmp_path / "site.yaml"
    text = TOKEN.sub(str(token), yaml.safe_dump(in_its_place(piece)))
    if VENV in text:
        text = text.replace(VENV, str(plugin_venv.make(tmp_path, name="cscs-dwdi-compute")))
    file.write_text(text)
    loaded = configuration.checked(file, {}, strict=True)
    assert [str(problem) for problem in loaded.problems if problem.severity is Severity.ERROR] == []
