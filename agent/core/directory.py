# SPDX-License-Identifier: MIT
"""What the site's directory (LDAP) holds, as far as planners need to know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryGroup:
    """A group that is named like an account. `obstacle`: why it is not ours to change; empty when it is.

    `gid`: its number, None where it has none, or is not there.
    """

    name: str
    members: frozenset[str] = frozenset()
    obstacle: str = ""
    gid: int | None = None
