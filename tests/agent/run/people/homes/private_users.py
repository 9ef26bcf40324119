# SPDX-License-Identifier: MIT
"""Users that only the children of a test see: a user database of its own over /etc/passwd in a private mount
namespace. The machine's own database is not touched, so nothing has to be taken back.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from rig.parts import REQUIRED, require

HIDE = 'mount --bind "$0" /etc/passwd && exec "$@"'


def command_prefix(folder: Path, users: Mapping[str, tuple[int, Path | str]]) -> list[str]:
    """What comes before a command that shall see these users (uid and home) along with the machine's own.

    Skips the test where the real helper or the right to make a namespace is missing.
    """
    require("unshare")
    require("mkhomedir_helper")
    passwd = folder / "passwd"
    lines = [f"{name}:x:{uid}:{uid}::{home}:/bin/sh\n" for name, (uid, home) in users.items()]
    passwd.write_text(Path("/etc/passwd").read_text() + "".join(lines))
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", HIDE, str(passwd)]
    tried = subprocess.run([*prefix, "true"], capture_output=True, text=True, timeout=600)
    if tried.returncode != 0:
        message = f"no private mount namespace here: {tried.stderr.strip()}"
        if REQUIRED:
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return prefix
