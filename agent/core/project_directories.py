# SPDX-License-Identifier: MIT
"""Project directories as values: what a site wants of them, and what stands on the head node."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

# The name of a folder, and a word on the command line of lfs.
ACCOUNT = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,254}")
# What stands in a mark for the offset of a project id.
GROUP = "group"
# 0 is "no project" for Lustre, 2**32 - 1 "unchanged".
MAX_PROJECT_ID = 2**32 - 2


@dataclass(frozen=True, slots=True)
class ProjectQuota:
    """The Lustre quota of every project directory."""

    mount_point: str
    # As in `HomeQuota`, blocks in KiB.
    limits: tuple[tuple[str, str], ...]
    # The project id is the number of the group plus this.
    id_offset: int = 0
    # The quota is the group's, in the whole file system.
    of_group: bool = False

    def mark(self) -> str:
        """Return what the quota depends on, as text from which `quota_of` reads it."""
        return json.dumps([self.mount_point, GROUP if self.of_group else self.id_offset, *self.limits])


@dataclass(frozen=True, slots=True)
class DirectoryRules:
    """Where project directories are made, with which owner and rights."""

    base_path: str
    owner: str
    # With the set-group-id bit.
    mode: int
    has_acl: bool
    # The group of all directories; empty for the group that is named like the account.
    group_name: str = ""
    quota: ProjectQuota | None = None

    def group_of(self, account: str) -> str:
        return self.group_name or account

    def path_of(self, account: str) -> str:
        return f"{self.base_path}/{account}"


@dataclass(frozen=True, slots=True)
class DirectoryRecord:
    """What is known of one account's directory: the mark (`ProjectQuota.mark`) under which its quota was set, and what
    the log has said last about it.
    """

    quota: str = ""
    logged: str = ""


NO_RECORD = DirectoryRecord()


def is_directory_name(account: str) -> bool:
    """Return whether an account's name may become a folder and reach lfs."""
    return ACCOUNT.fullmatch(account) is not None


def quota_of(mark: str) -> ProjectQuota | None:
    """Return the quota that was set under this mark; None where the mark does not say."""
    try:
        mount_point, id_offset, *limits = json.loads(mark)
        of_group = id_offset == GROUP
        found = tuple((str(name), str(value)) for name, value in limits)
        return ProjectQuota(str(mount_point), found, 0 if of_group else int(id_offset), of_group)
    except (ValueError, TypeError):
        return None
