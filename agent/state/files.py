# SPDX-License-Identifier: MIT
"""Folders and files below `state_dir`, for nobody but their owner (0700, 0600).

Root never writes into a folder of another user with its own rights: that user could have planted a symbolic link
there. What root does in such a folder it does with the file rights of the folder's owner.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.core.errors import StateUnwritable

# What setfsuid and setfsgid take for "tell, and change nothing".
ASK = 0xFFFFFFFF
# glibc's setgroups changes all threads; the system call changes this one. Its numbers, by machine.
SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
CAP_DAC_READ_SEARCH = 1 << 2
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True, slots=True)
class Owner:
    uid: int
    gid: int


def make_folder(folder: Path) -> None:
    """Make a folder and all that lead to it. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def owner_of(folder: Path) -> Owner:
    """Return the first user but root whom the folder, or one above it, belongs to; root where all are root's.

    Whoever owns a folder decides what lies below it. Links are looked at from both ends. Raises OSError.
    """
    for end in (Path(os.path.realpath(folder)), folder.absolute()):
        for place in (end, *end.parents):
            try:
                found = place.stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if found.st_uid != 0:
                return Owner(found.st_uid, found.st_gid)
    return Owner(0, 0)


@contextmanager
def acting_as_owner(folder: Path) -> Iterator[None]:
    """Do what follows with the file rights of the folder's owner, where root runs this and the owner is another.

    This holds for files that this thread opens, for no child and no thread that runs already: start none meanwhile.
    Raises StateUnwritable where the kernel does not allow it, OSError where nobody can tell whose the folder is.
    """
    owner = owner_of(folder) if os.geteuid() == 0 else Owner(0, 0)
    if owner.uid == 0:
        yield
        return
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        before, groups = Owner(_fs_id(libc, "setfsuid"), _fs_id(libc, "setfsgid")), os.getgroups()
    except _NoSuchCall as error:
        raise _cannot_act(folder, owner) from error
    if before.uid == owner.uid:
        yield
        return
    try:
        _become(libc, owner, folder)
        yield
    finally:
        _fs_id(libc, "setfsuid", before.uid)
        _fs_id(libc, "setfsgid", before.gid)
        if os.getgroups() != groups:
            _set_groups(libc, groups)


class _NoSuchCall(Exception):
    """The kernel or the C library has no such call, or refuses it."""


def _become(libc: ctypes.CDLL, owner: Owner, folder: Path) -> None:
    """Raises StateUnwritable."""
    try:
        _set_groups(libc, [])
        _fs_id(libc, "setfsgid", owner.gid)
        _fs_id(libc, "setfsuid", owner.uid)
        became = Owner(_fs_id(libc, "setfsuid"), _fs_id(libc, "setfsgid"))
    except _NoSuchCall as error:
        raise _cannot_act(folder, owner) from error
    if became != owner:
        raise _cannot_act(folder, owner)
    if not _is_reachable(folder):
        # systemd keeps the folders of dynamic users below one that is for root only: search it, and read.
        _allow_search(libc)


def _cannot_act(folder: Path, owner: Owner) -> StateUnwritable:
    return StateUnwritable(
        f"{folder} belongs to user {owner.uid}, root does not write there as root, and this host does not let it act "
        f"as that user: run the command as user {owner.uid}"
    )


def _fs_id(libc: ctypes.CDLL, call: str, number: int = ASK) -> int:
    """Set this thread's file system user or group, where the kernel allows it; return the one before."""
    function = getattr(libc, call, None)
    if function is None:
        raise _NoSuchCall(call)
    function.argtypes, function.restype = (ctypes.c_uint,), ctypes.c_uint
    return int(function(number))


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    if groups == os.getgroups():
        return
    number = SYS_SETGROUPS.get(platform.machine())
    numbers = (ctypes.c_uint * len(groups))(*groups)
    if number is None or libc.syscall(ctypes.c_long(number), ctypes.c_size_t(len(groups)), numbers) != 0:
        raise _NoSuchCall("setgroups")


def _is_reachable(folder: Path) -> bool:
    try:
        os.stat(folder)
    except PermissionError:
        return False
    except OSError:
        return True
    return True


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Capabilities(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _allow_search(libc: ctypes.CDLL) -> None:
    """Let this thread search folders and read files of others, where root may; it ends with the file system user."""
    header, sets = _Header(CAPABILITY_VERSION_3, 0), (_Capabilities * 2)()
    if libc.capget(ctypes.byref(header), sets) == 0:
        sets[0].effective |= CAP_DAC_READ_SEARCH & sets[0].permitted
        libc.capset(ctypes.byref(header), sets)
