# SPDX-License-Identifier: MIT
"""Looks at a virtual environment from outside: whether it can be trusted, and which backends of the reference it has.

Nothing in it is run. Whoever can write to it runs code as this user, and is root where the agent is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from agent.core.errors import ConfigError
from agent.host.files import others_may_change
from backends.reference.host import GROUP


def python_of(venv: Path) -> Path:
    """Return the Python of a virtual environment. Raises ConfigError where there is none, or others can change it."""
    python = venv / "bin/python"
    try:
        if not stat.S_ISDIR(os.stat(venv).st_mode):
            raise ConfigError(f"{venv} is no folder: give the folder of a virtual environment")
        python.resolve(strict=True)
        for place in _deciding(venv):
            found = os.lstat(place)
            if not stat.S_ISLNK(found.st_mode) and others_may_change(found):
                raise ConfigError(
                    f"{place} can be changed by others than root and this user, and would run with this user's "
                    f"rights: `chown -R root {venv}` and `chmod -R go-w {venv}`, and the same for the folders above"
                )
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}. Make the environment with `python3 -m venv {venv}`, and install the "
            "plugin with its pip"
        ) from error
    if not os.access(python, os.X_OK):
        raise ConfigError(f"{python} is no program that this user may run")
    return python


def package_of(venv: Path, name: str) -> str:
    """Return the package that brings a backend of the reference, with its version. Raises ConfigError where none of
    the environment does.
    """
    found: dict[str, str] = {}
    for package in distributions(path=[str(place) for place in venv.glob("lib*/python3*/site-packages")]):
        for point in package.entry_points.select(group=GROUP):
            found[point.name] = f"{package.metadata['Name']} {package.version}"
    if name not in found:
        raise ConfigError(
            f"no package in {venv} has a backend {name!r} of waldur-site-agent; it has: "
            f"{', '.join(sorted(found)) or 'none'}. Install it with `{venv}/bin/pip install`"
        )
    return found[name]


def _deciding(venv: Path) -> Iterator[Path]:
    """Yield what decides which code runs: all in the environment, what its links lead to step by step (its Python is
    one), and the folders above, but for folders where everybody may only change what is his.
    """
    inside = venv.resolve()
    waiting, seen = [inside], set[Path]()
    yield from _above(venv.absolute())
    while waiting:
        root = waiting.pop()
        if root in seen:
            continue
        seen.add(root)
        yield from _above(root)
        places = [root]
        if not root.is_symlink() and root.is_dir():
            walked = os.walk(root, onerror=_raise)
            places += [Path(folder, name) for folder, *names in walked for each in names for name in each]
        for place in places:
            yield place
            if place.is_symlink() and place.exists():
                step = Path(os.path.normpath(place.parent.resolve() / place.readlink()))
                if not step.is_relative_to(inside):
                    waiting.append(step)


def _above(place: Path) -> Iterator[Path]:
    for above in dict.fromkeys((*place.parents, *place.resolve().parents)):
        if not above.stat().st_mode & stat.S_ISVTX:
            yield above


def _raise(error: OSError) -> None:
    raise error
