# SPDX-License-Identifier: MIT
"""What this host calls its users and groups, by the name service (`/etc/passwd`, SSSD, ...).

A name service that is out of order answers as if there were nobody: what is found here forbids, what is not
found proves nothing.
"""

from __future__ import annotations

import grp
import pwd

# UID_MIN and GID_MIN of login.defs; 65534 and above are nobody, nogroup and their kin.
FIRST_PERSON = 1000
NOBODY = 65534


def is_taken(name: str) -> bool:
    """Does a user or a group of this name exist here?"""
    return _uid(name) is not None or _gid(name) is not None


def is_system_user(name: str) -> bool:
    """Is it root, or an account that a service runs as?"""
    return _is_of_the_system(_uid(name))


def is_system_group(name: str) -> bool:
    """Is it a group that gives rights on this host (`sudo`, `docker`, `disk`)?"""
    return _is_of_the_system(_gid(name))


def has_uid(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def has_gid(number: int) -> bool:
    try:
        grp.getgrgid(number)
    except KeyError:
        return False
    return True


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def _gid(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _is_of_the_system(number: int | None) -> bool:
    return number is not None and not FIRST_PERSON <= number < NOBODY
