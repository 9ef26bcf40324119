# SPDX-License-Identifier: MIT
"""The password file of the console: one line for each person, `NAME:ROLE:SALT:HASH`, the hash by scrypt. For its owner
only; it is read anew for each request, so that who is taken out is out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.cli.web.roles import Person, Role
from agent.core.errors import SiteAgentError
from agent.host import files

NAME = "console-passwords"
PERSON = re.compile(r"[a-z][a-z0-9._-]{0,31}")
SHORTEST, LONGEST = 12, 1024
# 32 MiB and about a tenth of a second for each try (RFC 7914).
COST, BLOCK, PARALLEL, MEMORY = 2**15, 8, 1, 2**26


class PasswordFileUnusable(SiteAgentError):
    """The console's password file cannot be read or written, or others may read or change it: nobody can log in."""


@dataclass(frozen=True, slots=True)
class Login(Person):
    """One person who may log in."""

    salt: bytes
    hash: bytes

    def matches(self, password: str) -> bool:
        return hmac.compare_digest(_hash(password, self.salt), self.hash)


# Tried where there is no such person, so that an answer does not say whether there is.
NO_LOGIN = Login("", Role.VIEWER, bytes(16), b"")


def new_login(name: str, role: Role, password: str) -> Login:
    """Return a login with a salt of its own. Raises ValueError, with a sentence."""
    if not PERSON.fullmatch(name):
        raise ValueError(f"{name!r} is no name: lower-case letters, digits, dots and dashes, 32 at most")
    if not SHORTEST <= len(password) <= LONGEST:
        raise ValueError(f"a password has at least {SHORTEST} characters")
    salt = secrets.token_bytes(16)
    return Login(name, role, salt, _hash(password, salt))


def read(path: Path) -> dict[str, Login]:
    """Return who may log in, by name; nobody where there is no file. Raises PasswordFileUnusable."""
    try:
        with files.acting_as_owner(path.parent), path.open(encoding="ascii") as file:
            found = os.fstat(file.fileno())
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = f"{getattr(error, 'strerror', '') or error}{files.how_to_act(path.parent, error)}"
        raise PasswordFileUnusable(f"{path} cannot be read: {why}") from error
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PasswordFileUnusable(f"{path} can be read by others than its owner: chmod 600 {path}")
    logins = {}
    for line in lines:
        try:
            name, role, salt, hashed = line.split(":")
            logins[name] = Login(name, Role(role), bytes.fromhex(salt), bytes.fromhex(hashed))
        except ValueError as error:
            raise PasswordFileUnusable(
                f"{path} has a line that `console passwd` did not write; delete it, and set that password again"
            ) from error
    return logins


def write(path: Path, logins: Mapping[str, Login]) -> None:
    """Replace the file, whole or not at all. Raises PasswordFileUnusable."""
    text = "".join(
        f"{each.name}:{each.role}:{each.salt.hex()}:{each.hash.hex()}\n" for each in logins.values()
    )
    try:
        with files.acting_as_owner(path.parent):
            files.make_folder(path.parent)
            files.put(path, text.encode("ascii"))
    except OSError as error:
        raise PasswordFileUnusable(f"{path} cannot be written: {error.strerror}") from error


def _hash(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=COST, r=BLOCK, p=PARALLEL, maxmem=MEMORY)
