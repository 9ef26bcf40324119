# SPDX-License-Identifier: MIT
"""Reads by a program of another user (sudo as a prefix), which is not ours to limit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import REPOSITORY


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a setuid program")
@pytest.mark.parametrize(("seconds", "said"), [("0", "0"), ("987", "gave no answer")])
def test_a_read_behind_a_setuid_prefix_goes_on_without_a_limit(seconds: str, said: str) -> None:
    """No other user may set limits on such a process (prlimit: EPERM), yet it is waited for, and ended in the end."""
    script = (
        "import os, sys; from backends.process import *\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "limit_s, *command = sys.argv[1:]\n"
        "try: print(Runner().read(command, timeout_s=float(limit_s)).returncode)\n"
        "except BackendUnavailable as error: print(error)"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            pytest.skip("/tmp is mounted nosuid")
        Path(folder).chmod(0o755)
        sleeper = Path(folder) / "sleeper"
        shutil.copy("/bin/sleep", sleeper)
        sleeper.chmod(0o4755)
        done = subprocess.run(
            [sys.executable, "-c", script, "0.5" if seconds != "0" else "60", str(sleeper), seconds],
            cwd=REPOSITORY, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert said in done.stdout, done.stderr
        assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(sleeper).encode() in _bytes_of(p)]


def _bytes_of(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
