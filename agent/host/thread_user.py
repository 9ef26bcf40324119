# SPDX-License-Identifier: MIT
"""The file system user of one thread (Linux: setfsuid), by the C library: Python has no call for it."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.core.errors import StateUnwritable

# What setfsuid and setfsgid take for "return it, and change nothing".
ASK = 0xFFFFFFFF
# glibc's setgroups changes all threads; the system call changes this one. Its numbers, by machine.
SYS_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}
CAP_DAC_READ_SEARCH = 1 << 2
CAPABILITY_VERSION_3 = 0x20080522


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int


@contextmanager
def acting_as(uid: int, gid: int, folder: Path) -> Iterator[None]:
    """Let this thread use files as another user while the body runs, as `files.acting_as_owner` does for `folder`.

    Raises StateUnwritable where the kernel does not allow it.
    """
    owner = User(uid, gid)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        before, groups = User(_fs_id(libc, "setfsuid"), _fs_id(libc, "setfsgid")), os.getgroups()
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


def _become(libc: ctypes.CDLL, owner: User, folder: Path) -> None:
    """Give this thread the file rights of a user. Raises StateUnwritable."""
    try:
        _set_groups(libc, [])
        _fs_id(libc, "setfsgid", owner.gid)
        _fs_id(libc, "setfsuid", owner.uid)
        became = User(_fs_id(libc, "setfsuid"), _fs_id(libc, "setfsgid"))
    except _NoSuchCall as error:
        raise _cannot_act(folder, owner) from error
    if became != owner:
        raise _cannot_act(folder, owner)
    if not _is_reachable(folder):
        # systemd keeps the folders of dynamic users below one that is for root only: search it, and read.
        _allow_search(libc)


def _cannot_act(folder: Path, owner: User) -> StateUnwritable:
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
