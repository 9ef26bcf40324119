# SPDX-License-Identifier: MIT
"""Users of the system itself, who are no person's: no pass gives them a home, a quota, a group or a membership."""

from __future__ import annotations

# UID_MIN and GID_MIN of login.defs.
FIRST_PERSON = 1000
# nobody and nogroup; the largest numbers of 16 and 32 bits stand for the user nobody, too, or for "none".
NOBODIES = frozenset({65534, 65535, 2**32 - 2, 2**32 - 1})
# Whatever their numbers: slurm has 64030 on Debian.
SYSTEM_USERS = frozenset({"root", "nobody", "nfsnobody", "munge", "slurm"})


def is_system_number(number: int) -> bool:
    """Return whether a uid or gid belongs to the system, not to a person or a project."""
    return number < FIRST_PERSON or number in NOBODIES
