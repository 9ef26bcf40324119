# SPDX-License-Identifier: MIT
"""Lustre project ids, project and group quotas as command lines, and what lfs prints of them. Pure; `homes` runs them.

`lfs project -d DIR` prints "id flag path", P where files below inherit the id. `lfs quota -q -p ID MOUNT` (-g: of a
group) prints the mount point, then used KiB (a star behind it where that is too much), soft and hard limit and grace,
and the same for files (lustre 2.12 to 2.15).
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.core.host_actions import SetProjectQuota
from backends.command_output import is_whole
from backends.storage.quotas import LFS_OPTIONS, Argv

# Places of the limits in the output of lfs quota.
COLUMNS = {"bsoft": 2, "bhard": 3, "isoft": 6, "ihard": 7}


def tag(path: str, project_id: int) -> Argv:
    """Return what gives a folder, and all that will be made below it, a project id."""
    return ("lfs", "project", "-p", str(project_id), "-r", "-s", path)


def show_tag(path: str) -> Argv:
    return ("lfs", "project", "-d", path)


def tag_of(said: str) -> int | None:
    """Return the project id that `show_tag` printed; None where it did not."""
    words = said.split(maxsplit=2)
    return int(words[0]) if len(words) == 3 and words[1] in ("P", "-") and is_whole(words[0]) else None


def settings(action: SetProjectQuota) -> Argv:
    options = [word for name, value in action.limits for word in (LFS_OPTIONS[name], value)]
    return ("lfs", "setquota", _kind(action.of_group), str(action.project_id), *options, action.mount_point)


def show(project_id: int, mount_point: str, *, of_group: bool = False) -> Argv:
    return ("lfs", "quota", "-q", _kind(of_group), str(project_id), mount_point)


def _kind(of_group: bool) -> str:
    return "-g" if of_group else "-p"


def limits_of(said: str) -> dict[str, str] | None:
    """Return the limits that `show` printed; None where the output is not that of lfs quota."""
    words = said.split()
    if len(words) < 9 or not all(is_whole(words[place]) for place in COLUMNS.values()):
        return None
    return {name: words[place] for name, place in COLUMNS.items()}


def differences(said: str, limits: Iterable[tuple[str, str]]) -> list[str] | None:
    """Return the limits that are not as they were set, as words; None where the output is not that of lfs quota."""
    found = limits_of(said)
    if found is None:
        return None
    return [f"{name} is {found[name]}, not {value}" for name, value in limits if found[name] != value]
