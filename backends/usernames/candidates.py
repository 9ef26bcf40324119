# SPDX-License-Identifier: MIT
"""Usernames made of people's names: a format, and the names to try when one is taken. `choice` picks a free one.

A person in whose name no plain letter is left (see `spelling`) is named after the login in Waldur.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

from agent.config.field_types import Text, whole
from agent.config.keys import key
from agent.core.errors import BackendError
from agent.core.model import OfferingUser
from backends.usernames.spelling import plain

# useradd of shadow-utils 4.13 and utmp know no longer ones.
MAX_LENGTH = 32
FIRST_COUNTER = 2
LAST_COUNTER = 999

FORMATS = {
    "first_initial_lastname": "{first:.1}{last}",
    "first_letter_full_lastname": "{first:.1}.{last}",
    "firstname_dot_lastname": "{first}.{last}",
    "firstname_lastname": "{first}{last}",
    "waldur_username": "{waldur_username}",
}
FIELDS = ("first", "last", "waldur_username", "email")

# Names that no person may have, on any system; the last ones are keywords of sacctmgr (22.05).
NEVER = frozenset({
    "root", "admin", "administrator", "daemon", "nobody", "nogroup", "sudo", "wheel", "docker", "slurm", "munge",
    "all", "none", "set", "where", "and", "format", "withassoc", "withassocs", "withdeleted", "withcoord",
})  # fmt: skip

_POSIX = re.compile(r"[a-z_][a-z0-9_.-]*")
_GROUP = re.compile(r"[a-z0-9_][a-z0-9_.-]*")
_LITERAL = re.compile(r"[a-z0-9_.-]*")
_SPEC = re.compile(r"(\.[1-9][0-9]?)?")


def pattern_of(word: str) -> str:
    """Return the pattern that a setting means: one of FORMATS by name, or a pattern itself. Raises ValueError."""
    if word in FORMATS:
        return FORMATS[word]
    used = set()
    for literal, name, spec, conversion in string.Formatter().parse(word):
        if not _LITERAL.fullmatch(literal):
            raise ValueError(f"{literal!r} in it cannot stand in a username")
        if name is None:
            continue
        if name not in FIELDS or conversion or not _SPEC.fullmatch(spec or ""):
            unknown = f"{{{name}}}" if name not in FIELDS else word
            raise ValueError(
                f"{unknown} is not known; use {', '.join(f'{{{f}}}' for f in FIELDS)}, {{first:.1}}"
            )
        used.add(name)
    if not used:
        raise ValueError(
            f"it is none of {', '.join(FORMATS)}, and names no part of a person: {{first}}, {{last}}"
        )
    return word


@dataclass(frozen=True, slots=True)
class NameFormat:
    """How names look."""

    # For `str.format`, with the names in FIELDS and a length at most (`{first:.1}`).
    pattern: str = key(
        FORMATS["first_initial_lastname"],
        "a word or a pattern, see above",
        name="format",
        of=Text(pattern_of),
        usual_value="first_initial_lastname",
    )
    max_length: int = key(MAX_LENGTH, f"4 to {MAX_LENGTH}", of=whole(4, MAX_LENGTH))
    last_counter: int = key(LAST_COUNTER, "the last number that is tried", of=whole(2, 99_999))


def posix_problem(name: str) -> str:
    """Return why this username cannot be used; empty when it can."""
    if not name:
        return "it is empty"
    if len(name) > MAX_LENGTH:
        return f"it has {len(name)} characters, at most {MAX_LENGTH} are possible"
    if name in NEVER:
        return "it belongs to the system"
    if not _POSIX.fullmatch(name):
        return "use small letters, digits, '_', '.' and '-', and a letter or '_' at the beginning"
    return ""


def group_problem(name: str) -> str:
    """Return why no allocation's group can have this name; empty when one can. Accounts may begin with a digit."""
    if name in NEVER:
        return "it belongs to the system"
    if not _GROUP.fullmatch(name):
        return "use small letters, digits, '_', '.' and '-', and neither '-' nor '.' at the beginning"
    return ""


def candidates(user: OfferingUser, wanted: NameFormat) -> Iterator[str]:
    """Yield names to try for a person, best first.

    First comes what the format says, then more of the first name where a dot follows it, then a number behind the
    name. Raises BackendError where nothing usable is left of the person's names.
    """
    parts = {
        "first": re.sub(r"[^a-z0-9]", "", plain(user.first_name)),
        "last": re.sub(r"[^a-z0-9]", "", plain(user.last_name)),
        "waldur_username": re.sub(r"[^a-z0-9._-]", "", plain(user.waldur_username)),
        "email": re.sub(r"[^a-z0-9._-]", "", plain(user.email.partition("@")[0])),
    }
    first, last, longest = parts["first"], parts["last"], wanted.max_length
    used = [name for _, name, _, _ in string.Formatter().parse(wanted.pattern) if name]
    base = _trimmed(wanted.pattern.format(**parts), longest) if all(map(parts.get, used)) else ""
    base = base or _trimmed(parts["waldur_username"], longest)
    if not _POSIX.fullmatch(base):
        raise BackendError(
            f"no username can be made of the names of user {user.user_uuid}: Waldur shows "
            f"{user.first_name!r} {user.last_name!r} and the login {user.waldur_username!r}. Let the offering expose "
            "the full name and the username, or give the person a name in Waldur"
        )
    yield base
    given, dot, family = base.partition(".")
    if dot and family == last and first.startswith(given):
        for length in range(2, len(first) + 1):
            longer = f"{first[:length]}.{last}"
            if longer != base and len(longer) <= longest:
                yield longer
    for number in range(FIRST_COUNTER, wanted.last_counter + 1):
        suffix = str(number)
        yield base[: longest - len(suffix)] + suffix


def _trimmed(name: str, max_length: int) -> str:
    """Return the name from its first letter on, cut, and without a dot or dash at its end."""
    return re.sub(r"^[^a-z_]+", "", name)[:max_length].rstrip(".-")
