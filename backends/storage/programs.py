# SPDX-License-Identifier: MIT
"""The programs for homes and quotas: where they are, and which package has one that is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from backends.process import CommandMissing

HELPER = "/sbin/mkhomedir_helper"
# cron and some units have no sbin in their PATH.
SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
PACKAGES: Mapping[str, str] = {
    "mkhomedir_helper": "it comes with PAM: libpam-modules-bin (Debian), pam (Red Hat)",
    "setfattr": "it is in the package attr",
    "getfattr": "it is in the package attr",
    "xfs_quota": "it is in the package xfsprogs",
    "lfs": "it is in the packages of the Lustre client",
}


@dataclass(frozen=True, slots=True)
class Programs:
    """Finds programs on PATH and in SYSTEM_FOLDERS."""

    # Where mkhomedir_helper is looked for first.
    helper: str = HELPER

    def name_to_print(self, program: str) -> str:
        """Return how a command line for people names a program."""
        return self.helper if program == "mkhomedir_helper" else program

    def find(self, program: str) -> str:
        """Return the path to start. Raises CommandMissing with the package that has the program."""
        if program == "mkhomedir_helper" and os.access(self.helper, os.X_OK):
            return self.helper
        search = ":".join((os.environ.get("PATH", ""), *SYSTEM_FOLDERS))
        found = shutil.which(program, path=search)
        if found is None:
            raise CommandMissing(f"{program} is not on this head node: {PACKAGES[program]}")
        return found
