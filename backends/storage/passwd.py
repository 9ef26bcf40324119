# SPDX-License-Identifier: MIT
"""The system's user database (NSS): who is known to this head node.

`getpwnam_r` itself is called: Python's `pwd.getpwnam` makes "no such user" of every error (a directory that does not
respond, no file left to open), and a user who could not be looked up is unknown, not absent.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agent.core.errors import BackendUnavailable

FIRST_BUFFER_BYTES = 4096
LARGEST_BUFFER_BYTES = 1 << 20
# getpwnam(3): with these there is no such user; every other number is an error.
NO_SUCH_USER = frozenset({0, errno.ENOENT, errno.ESRCH, errno.EBADF, errno.EPERM})


class UserDatabaseUnavailable(BackendUnavailable):
    """The user database gave an error: it is unknown whether the user is there."""


@dataclass(frozen=True, slots=True)
class PasswdEntry:
    """A user as the system knows them, under the name that was looked up."""

    name: str
    uid: int
    gid: int
    # As it is written there.
    home: str


Lookup = Callable[[str], PasswdEntry | None]


@dataclass(frozen=True, slots=True)
class Resolved:
    """Users that are known here, names that are not, and names that could not be looked up, with the reason."""

    entries: tuple[PasswdEntry, ...] = ()
    absent: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    trouble: UserDatabaseUnavailable | None = None


class _Passwd(ctypes.Structure):
    """`struct passwd` of glibc and musl on Linux."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("password", ctypes.c_char_p),
        ("uid", ctypes.c_uint32),
        ("gid", ctypes.c_uint32),
        ("gecos", ctypes.c_char_p),
        ("home", ctypes.c_char_p),
        ("shell", ctypes.c_char_p),
    )


_LIBC = ctypes.CDLL(None, use_errno=False)


def lookup(name: str) -> PasswdEntry | None:
    """Return the user of that name, None when there is none. Raises UserDatabaseUnavailable for an error."""
    size = FIRST_BUFFER_BYTES
    while True:
        found, buffer = _Passwd(), ctypes.create_string_buffer(size)
        result = ctypes.POINTER(_Passwd)()
        code = _LIBC.getpwnam_r(
            os.fsencode(name), ctypes.byref(found), buffer, ctypes.c_size_t(size), ctypes.byref(result)
        )
        if result:
            home = os.fsdecode(found.home or b"")
            return PasswdEntry(name, int(found.uid), int(found.gid), home)
        if code in NO_SUCH_USER:
            return None
        if code == errno.ERANGE and size < LARGEST_BUFFER_BYTES:
            size *= 4
        elif code != errno.EINTR:
            raise UserDatabaseUnavailable(
                f"the system's user database cannot say who {name} is: {os.strerror(code)}. Check the services "
                "named under `passwd` in /etc/nsswitch.conf (sssd, nslcd, nscd)"
            )


def resolve(
    names: Iterable[str], look_up: Lookup = lookup, *, in_time: Callable[[], bool] = lambda: True
) -> Resolved:
    """Look names up one by one.

    After the first error, or once `in_time` is false, the rest is unknown: a directory that does not respond takes its
    time-out for every single name.
    """
    entries, absent, unknown = [], [], []
    trouble: UserDatabaseUnavailable | None = None
    for name in names:
        if trouble is not None or not in_time():
            unknown.append(name)
            continue
        try:
            entry = look_up(name)
        except UserDatabaseUnavailable as error:
            trouble = error
            unknown.append(name)
            continue
        if entry is None:
            absent.append(name)
        else:
            entries.append(entry)
    return Resolved(tuple(entries), tuple(absent), tuple(unknown), trouble)
