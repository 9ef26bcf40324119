# SPDX-License-Identifier: MIT
"""Folders and files below `state_dir`, for their owner only (0700, 0600).

Root never writes into a folder of another user with its own rights: that user could have planted a symbolic link
there. What root does in such a folder it does with the file rights of the folder's owner.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# This host is short of something for now, and nothing is wrong with what was asked.
SHORT = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS})


@dataclass(frozen=True, slots=True)
class Owner:
    uid: int
    gid: int


def others_may_change(found: os.stat_result) -> bool:
    """Return whether others than root and this user may write to a file or folder."""
    return bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)) or found.st_uid not in (0, os.geteuid())


def make_folder(folder: Path) -> None:
    """Make a folder and all that lead to it. Raises OSError."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def put(
    path: Path, content: bytes, *, mode: int = 0o600, owner: Owner | None = None, is_new: bool = False
) -> None:
    """Write a file, whole or not at all, in place of one that is there. `is_new`: one that is there stays as it is.
    Raises OSError, of these FileExistsError for a new one.
    """
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as stream:
            if owner is not None:
                os.fchown(descriptor, owner.uid, owner.gid)
            os.fchmod(descriptor, mode)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        if is_new:
            os.link(draft, path)
        else:
            os.replace(draft, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)


def owner_of(folder: Path) -> Owner:
    """Return the first user but root whom the folder, or one above it, belongs to; root where all are root's.

    Whoever owns a folder decides what lies below it. Links are looked at from both ends. Raises OSError.
    """
    path = str(folder.absolute())
    is_real = ".." not in folder.parts
    # This is asked with each look at the state file: both ends of a path without links are one.
    for place in _way_up(path):
        with suppress(FileNotFoundError, NotADirectoryError):
            found = os.lstat(place)
            is_real = is_real and not stat.S_ISLNK(found.st_mode)
            if is_real and found.st_uid != 0:
                return Owner(found.st_uid, found.st_gid)
    for end in () if is_real else dict.fromkeys((os.path.realpath(folder), path)):
        for place in _way_up(end):
            with suppress(FileNotFoundError, NotADirectoryError):
                found = os.stat(place)
                if found.st_uid != 0:
                    return Owner(found.st_uid, found.st_gid)
    return Owner(0, 0)


def _way_up(path: str) -> Iterator[str]:
    """Yield an absolute path and all that leads to it."""
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield path


def how_to_act(folder: Path, error: Exception) -> str:
    """Return what a person does whom an error denies something in a folder, as the end of a sentence; empty for other
    errors, and for root.
    """
    denied = isinstance(error, PermissionError) or not os.access(folder, os.W_OK)
    if not denied or os.geteuid() == 0:
        return ""
    try:
        uid = owner_of(folder).uid
        name = pwd.getpwuid(uid).pw_name
    except (OSError, KeyError):
        return ". Run this as the user of the services, or as root (`sudo ...`)"
    who = "root (`sudo ...`)" if uid == 0 else f"that user (`sudo -u {name} ...`) or as root"
    return f". It is {name}'s: run this as {who}; where sudo does not keep WALDUR_SITE_AGENT_CONFIG, with `-c FILE`"


@contextmanager
def acting_as_owner(folder: Path) -> Iterator[None]:
    """Do what follows with the file rights of the folder's owner, where root runs this and the owner is another.

    This holds for files that this thread opens, for no child and no thread that runs already: start none in the body.
    Raises StateUnwritable where the kernel does not allow it, OSError where the owner of the folder is unknown.
    """
    owner = owner_of(folder) if os.geteuid() == 0 else Owner(0, 0)
    if owner.uid == 0:
        yield
        return
    # ctypes is 1 MB in each process of the pool, and is needed where the folder is another user's only.
    from agent.host import thread_user

    with thread_user.acting_as(owner.uid, owner.gid, folder):
        yield
