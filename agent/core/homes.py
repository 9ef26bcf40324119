# SPDX-License-Identifier: MIT
"""Home directories as values: what a site wants of them, and what the head node has."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

# xfs_quota parses its command by itself, so a blank or a quote in a name would be a word of its language.
USERNAME = re.compile(r"[a-z_][a-z0-9_.-]*")
MAX_USERNAME_LENGTH = 255  # of a name of a folder
# Homes of users who shall have none (Debian policy 9.2.3, the BSDs).
NO_HOMES = ("/nonexistent", "/var/empty", "/dev/null")
# Folders of the system itself: whoever owns one below them can have commands run as root.
SYSTEM_FOLDERS = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys", "/usr",
    "/var/cache", "/var/lib", "/var/log", "/var/run", "/var/spool",
)  # fmt: skip


class QuotaProvider(StrEnum):
    """Who keeps the quota: attributes of a Ceph folder, or the user quotas of an XFS or Lustre file system."""

    CEPH_XATTR = "ceph_xattr"
    XFS = "xfs"
    LUSTRE = "lustre"


@dataclass(frozen=True, slots=True)
class HomeQuota:
    """What every home may hold."""

    provider: QuotaProvider
    # At least one, in the order in which the provider's tool takes them. Ceph: `ceph.quota.max_bytes` (digits) and
    # `ceph.quota.max_files`. XFS and Lustre: `bsoft`, `bhard` (digits and a unit; without one bytes for XFS, KiB for
    # Lustre), `isoft`, `ihard`.
    limits: tuple[tuple[str, str], ...]
    # Empty for Ceph, whose quota is the folder's own.
    mount_point: str = ""


@dataclass(frozen=True, slots=True)
class HomeRules:
    """Whether homes are made, with which umask, below which folder, under which quota."""

    create: bool = True
    # Four octal digits; it never takes a right from the owner and always takes writing from group and others.
    umask: str = "0077"
    # Empty: homes are where the system's user database says.
    base_path: str = ""
    quota: HomeQuota | None = None
    # Homes are directly below one of these; without any they are anywhere but in the system's own folders.
    bases: tuple[str, ...] = ()

    def home_mark(self) -> str:
        """Return what a home depends on, as a short text: a home seen under another mark is looked at once more."""
        return sha256("\0".join((self.base_path, *self.bases)).encode()).hexdigest()[:12]

    def quota_mark(self) -> str:
        """Return what a quota depends on, as text from which `quota_of` reads it; empty where there is none to set."""
        if self.quota is None:
            return ""
        return json.dumps([self.quota.provider, self.quota.mount_point, self.base_path, *self.quota.limits])


@dataclass(frozen=True, slots=True)
class Home:
    """The home of one user on the head node."""

    user: str
    # Where the site wants it.
    path: str
    # Where the user database says, and so where it would be made.
    made_at: str = ""
    exists: bool = False
    # Why neither it nor its quota may be touched.
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class HomeRecord:
    """What is known of one user: the marks (`HomeRules`) under which the home was seen and the quota set."""

    home: str = ""
    quota: str = ""
    # In a row.
    failures: int = 0
    # What the log has said last about a user who cannot have a home yet.
    logged: str = ""


NOTHING = HomeRecord()


def is_username(name: str) -> bool:
    """Return whether a name may reach the system's user database, a path and the tools of quotas."""
    return len(name) <= MAX_USERNAME_LENGTH and USERNAME.fullmatch(name) is not None


def is_home(home: str) -> bool:
    """Return whether a text can be the path of a person's home."""
    parts = home.split("/")
    is_plain = home.startswith("/") and home.isprintable() and not {".", ".."}.intersection(parts)
    return is_plain and _normal(home) not in ("/", *NO_HOMES)


def home_problem(home: str, bases: Sequence[str]) -> str:
    """Return why no user may get this home on this host; empty where a user may. `bases` as in `HomeRules`."""
    if not is_home(home):
        return "it is none that a person can have"
    place = _normal(home)
    folder, _, name = place.rpartition("/")
    if bases:
        is_below = folder in bases and not name.startswith(".")
        return "" if is_below else f"it is not directly below {' or '.join(bases)} (homedir_bases)"
    of_system = next((each for each in SYSTEM_FOLDERS if f"{place}/".startswith(f"{each}/")), "")
    return f"it is in {of_system}, which is the system's (homedir_bases)" if of_system else ""


def home_name(home: str) -> str:
    """Return the name of a home's folder."""
    return home.rstrip("/").rpartition("/")[2]


def quota_of(mark: str) -> HomeQuota | None:
    """Return the quota that was set under this mark (`HomeRules.quota_mark`); None where the mark does not say."""
    try:
        provider, mount_point, _, *limits = json.loads(mark)
        return HomeQuota(
            QuotaProvider(provider), tuple((str(name), str(value)) for name, value in limits), mount_point
        )
    except (ValueError, TypeError):
        return None


def _normal(path: str) -> str:
    return "/" + "/".join(filter(None, path.split("/")))
