# SPDX-License-Identifier: MIT
"""The page on architecture names every room and every module of the code, and none that is gone."""

from __future__ import annotations

import re

from tests import REPOSITORY

TREE = re.search(
    r"## Where things are\n\n```\n(.*?)```", (REPOSITORY / "docs/architecture.md").read_text(), re.DOTALL
)
FOLDERS = ("agent", "agent/run", "backends")


def named() -> set[str]:
    """Folders and files of the tree, each with the folders above it."""
    assert TREE
    found: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in TREE[1].splitlines():
        depth = len(line) - len(line.lstrip())
        words = re.split(r" {2,}", line.strip())[0].split()
        if not words or depth > 4 or not all(word.endswith((".py", "/")) for word in words):
            continue
        above = [(at, folder) for at, folder in above if at < depth]
        prefix = above[-1][1] if above else ""
        found |= {prefix + word for word in words}
        if len(words) == 1 and words[0].endswith("/"):
            above.append((depth, prefix + words[0]))
    return found


def test_every_room_is_on_the_page_and_every_name_on_it_is_there() -> None:
    names = named()
    assert len(names) > 40
    assert sorted(name for name in names if not (REPOSITORY / name).exists()) == []
    rooms = {
        f"{path.relative_to(REPOSITORY)}/"
        for folder in FOLDERS
        for path in (REPOSITORY / folder).iterdir()
        if (path / "__init__.py").is_file()
    }
    assert sorted(rooms - names) == []


def test_every_module_is_on_the_page_and_every_module_on_it_is_there() -> None:
    page = (REPOSITORY / "docs/architecture.md").read_text()
    rows = re.findall(
        r"^\| `([\w/]+)` \|.*\| ([^|]*) \|$", page.partition("## Every module\n")[2], re.MULTILINE
    )
    listed = {f"{room}/{module}.py" for room, modules in rows for module in re.findall(r"`(\w+)`", modules)}
    there = {
        str(path.relative_to(REPOSITORY))
        for root in ("agent", "backends", "simulator", "tasks")
        for path in (REPOSITORY / root).rglob("*.py")
        if path.stem != "__init__"
    }
    assert (sorted(there - listed), sorted(listed - there)) == ([], []), "run `make docs`"


def test_at_the_root_of_a_room_of_runs_stand_a_dozen_files_at_the_most() -> None:
    assert len(list((REPOSITORY / "agent/run").glob("*.py"))) <= 12
