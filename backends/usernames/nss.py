# SPDX-License-Identifier: MIT
"""Users and groups of this host, by the name service (`/etc/passwd`, SSSD, ...).

A name service that is out of order finds no user: a name that is found here is taken, one that is not found may be
taken all the same.
"""

from __future__ import annotations

import grp
import pwd

from agent.core.system_users import SYSTEM_USERS, is_system_number


def is_taken(name: str) -> bool:
    """Return whether a user or a group of this name exists here."""
    return uid_of(name) is not None or gid_of(name) is not None


def is_system_user(name: str) -> bool:
    """Return whether it is root, or a user that a service runs as."""
    return name in SYSTEM_USERS or _is_of_the_system(uid_of(name))


def is_system_group(name: str) -> bool:
    """Return whether it is a group that gives rights on this host (`sudo`, `docker`, `disk`)."""
    return _is_of_the_system(gid_of(name))


def has_uid(number: int) -> bool:
    """Return whether a user of this host has the number."""
    return user_of(number) is not None


def has_gid(number: int) -> bool:
    """Return whether a group of this host has the number."""
    return group_of(number) is not None


def user_of(number: int) -> str | None:
    """Return the user of this host that has the number, None where there is none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return None


def group_of(number: int) -> str | None:
    """Return the group of this host that has the number, None where there is none."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return None


def uid_of(name: str) -> int | None:
    """Return the number of a user of this host; None where there is none, or the name service is out of order."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def gid_of(name: str) -> int | None:
    """Return the number of a group of this host; None where there is none, or the name service is out of order."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _is_of_the_system(number: int | None) -> bool:
    return number is not None and is_system_number(number)
