# SPDX-License-Identifier: MIT
"""Whether the modules that a process imports by our generic names (`agent`, `tasks`, ...) are ours.

Another package in the same environment may bring a folder of the same name: then either one of the two is imported,
or files of both lie in one folder. `doctor` calls `foreign_modules`.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

from agent.core.printable import shortlist

DISTRIBUTION = "waldur-site-cluster"
PACKAGES = ("agent", "backends", "simulator", "tasks")
MODULES = ("beat_schedule", "flowerconfig", "manage")
REMEDY = "install waldur-site-cluster into a virtual environment with nothing else in it"
NAMED = 3


def foreign_modules() -> tuple[str, ...]:
    """Return a sentence, with what to do, for each of our names that leads to a file which is not ours. Imports none
    of them.
    """
    root = Path(__file__).resolve().parents[2]
    return tuple(f"{problem}; {REMEDY}" for problem in (*_elsewhere(root), *_replaced(root)))


def _elsewhere(root: Path) -> Iterator[str]:
    """Yield our names that Python finds in another folder than the one in which this file is."""
    for name in (*PACKAGES, *MODULES):
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            yield f"`import {name}` finds no module of ours"
        elif Path(spec.origin).resolve() not in (root / name / "__init__.py", root / f"{name}.py"):
            yield f"`import {name}` leads to {spec.origin}, and not to ours in {root}"


def _replaced(root: Path) -> Iterator[str]:
    """Yield installed files that are not as they were installed, or that two packages claim. Nothing for a checkout,
    whose files belong to no package.
    """
    try:
        ours = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    own = {str(file): file for file in ours.files or () if file.suffix == ".py" and _is_ours(file)}
    if not own or Path(str(ours.locate_file(""))).resolve() != root:
        return
    changed = [name for name, file in own.items() if not _is_unchanged(file, root / name)]
    if changed:
        yield f"{_few(changed)} in {root} are not the files that were installed"
    for other in metadata.distributions():
        if other.name != DISTRIBUTION:
            shared = [str(file) for file in other.files or () if str(file) in own]
            if shared:
                yield f"{_few(shared)} belong to the package {other.name} as well"


def _is_ours(file: metadata.PackagePath) -> bool:
    return PurePosixPath(file).parts[0] in (*PACKAGES, *(f"{name}.py" for name in MODULES))


def _is_unchanged(file: metadata.PackagePath, path: Path) -> bool:
    if file.hash is None or file.hash.mode != "sha256":
        return True
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == file.hash.value


def _few(names: Iterable[str]) -> str:
    return shortlist(sorted(names), NAMED)
