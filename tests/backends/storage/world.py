# SPDX-License-Identifier: MIT
"""A head node of our own: its users, file systems, and stand-ins for the programs that make homes and set quotas."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backends.lock import WriteLock
from backends.storage.homes import HeadNode
from backends.storage.passwd import PasswdEntry, UserDatabaseUnavailable
from backends.storage.programs import Programs
from rig import warm_python

SOURCES = Path(__file__).parent / "programs"
TOOLS = ("mkhomedir_helper", "setfattr", "getfattr", "xfs_quota", "lfs")
FIRST_UID = 20000


@dataclass(frozen=True)
class Fault:
    """How a call of `program` whose words hold `needle` ends; `hangs`: not before the file `go` is there."""

    program: str
    needle: str = ""
    code: int = 1
    stderr: str = ""
    stdout: str = ""
    hangs: bool = False


class World:
    """`homes` is where homes are made; `mounts` are the folders of the file systems by kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.homes = folder / "homes"
        self.homes.mkdir()
        self._sources = folder / "sources"
        self._sources.mkdir()
        shutil.copy(SOURCES / "world.py", self._sources)
        self.install(*TOOLS)
        self.file_systems()
        self._write("users", {})
        self.asked: list[str] = []
        self.trouble_from = ""

    def install(self, *programs: str) -> None:
        for name in programs:
            source = shutil.copy(SOURCES / f"{name}.py", self._sources / name)
            warm_python.of_programs().write_client(self.bin / name, str(source))

    def add_users(self, *names: str, home: str = "") -> None:
        users = self._read("users")
        for name in names:
            users[name] = [FIRST_UID + len(users), home or str(self.homes / name)]
        self._write("users", users)

    def file_systems(self, **kinds: str) -> None:
        """`/path=kind`; without any, `homes` is on ext4."""
        self._write("file_systems", {path: kind for kind, path in kinds.items()})

    def swap(self, place: str, elsewhere: Path) -> None:
        """Whoever sets an attribute finds a link in place of the folder."""
        self._write("swap", {place: str(elsewhere)})

    def faults(self, *faults: Fault) -> None:
        self._write("faults", [asdict(fault) for fault in faults])

    def let_go(self) -> None:
        """Programs that hang end."""
        (self.folder / "go").touch()

    def ask(self, name: str) -> PasswdEntry | None:
        """As `passwd.lookup`; from `trouble_from` on in the alphabet the database gives an error."""
        self.asked.append(name)
        if self.trouble_from and name >= self.trouble_from:
            raise UserDatabaseUnavailable(f"cannot say who {name} is: error {errno.EIO}")
        found = self._read("users").get(name)
        return PasswdEntry(name, found[0], found[0], found[1]) if found else None

    def head_node(self, *, leave_after_s: float = 600.0) -> HeadNode:
        return HeadNode(
            WriteLock(self.folder / "state", "homes", wait_s=0),
            programs=Programs(helper=str(self.bin / "mkhomedir_helper")),
            lookup=self.ask,
            leave_after_s=leave_after_s,
        )

    def calls(self, *programs: str) -> list[list[str]]:
        """Calls so far with their words, of these programs or of all."""
        log = self.folder / "log"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in lines if not programs or line[0] in programs]

    def forget_calls(self) -> None:
        (self.folder / "log").unlink(missing_ok=True)
        self.asked.clear()

    def kept(self, provider: str) -> Any:
        """What a provider's stand-in holds: `attributes` (Ceph), `xfs`, `lustre`."""
        return self._read(provider)

    def made(self) -> set[str]:
        return {path.name for path in self.homes.iterdir() if path.is_dir() and not path.is_symlink()}

    def _read(self, name: str) -> Any:
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else {}

    def _write(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value))


def modes(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: f"{(folder / name).stat().st_mode & 0o7777:04o}" for name in names}
