# SPDX-License-Identifier: MIT
"""A smallest configuration, ways to change one thing in it, and ways to read what came out."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agent.config.load import LoadResult, load
from agent.config.model import Offering, Severity
from rig.site import DUMPER
from tests import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
UUID = "e21a0f0030b447deb63bedf69db6742e"
CPU = {"measured_unit": "k-Hours", "accounting_type": "usage", "label": "CPU", "unit_factor": 60000}
OFFERING: Mapping[str, Any] = {
    "name": "One",
    "waldur_api_url": "https://waldur.example.com/api/",
    "waldur_api_token": "t0ken",
    "waldur_offering_uuid": UUID,
    "backend_type": "slurm",
    "order_processing_backend": "slurm",
    "backend_settings": {"customer_prefix": "c_"},
    "backend_components": {"cpu": CPU},
}
SKIPPED = object()


class Site:
    """A folder with one configuration file in it; nothing of the real environment is seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "site.yaml"

    def load(
        self, tree: object, environ: Mapping[str, str] | None = None, *, strict: bool | None = None
    ) -> LoadResult:
        return self.load_text(yaml.dump(tree, Dumper=DUMPER, sort_keys=False), environ, strict=strict)

    def load_text(
        self, text: str, environ: Mapping[str, str] | None = None, *, strict: bool | None = None
    ) -> LoadResult:
        self.file.write_text(text, encoding="utf-8")
        self.file.chmod(0o600)
        return load(self.file, environ or {}, strict=strict)

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
        return file


def changed(tree: Mapping[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of the tree with the value at a dotted path; SKIPPED takes the key away."""
    result = copy.deepcopy(dict(tree))
    *above, last = path.split(".")
    place = result
    for key in above:
        place = place.setdefault(key, {})
    place.pop(last, None)
    if value is not SKIPPED:
        place[last] = value
    return result


def root(**keys: Any) -> dict[str, Any]:
    """A whole configuration with one offering and these keys at its root."""
    return {**keys, "offerings": keys.get("offerings", [dict(OFFERING)])}


def with_offering(path: str, value: object) -> dict[str, Any]:
    """A whole configuration whose only offering has this value at this path."""
    return root(offerings=[changed(OFFERING, path, value)])


def only_offering(loaded: LoadResult) -> Offering:
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]
    (offering,) = loaded.settings.offerings
    return offering


def errors(loaded: LoadResult) -> dict[str, str]:
    """Messages of the errors by path."""
    return {p.path: p.message for p in loaded.problems if p.severity is Severity.ERROR}


def warnings(loaded: LoadResult) -> dict[str, str]:
    return {p.path: p.message for p in loaded.problems if p.severity is Severity.WARNING}


def variables_of(file: Path) -> dict[str, str]:
    """The variables of a .env file, read as systemd and docker read them."""
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}
