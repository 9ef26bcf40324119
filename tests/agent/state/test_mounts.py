# SPDX-License-Identifier: MIT
"""Which file system a folder is on, from the kernel's list of mounts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent.config.model import Severity
from agent.core.errors import StateUnreadable
from agent.run.service import configuration
from agent.state import mounts, pauses
from agent.state.mounts import type_of
from agent.state.store import NAME, kept_open
from tests.agent.config.samples import Site as Configuration
from tests.agent.config.samples import root
from tests.agent.state.conftest import in_private_mounts, offering

MOUNTS = r"""proc /proc proc rw 0 0
/dev/vda / ext4 rw 0 0
tmpfs /run tmpfs rw 0 0
/etc/auto.home /home autofs rw 0 0
nas:/home /home nfs4 rw,vers=4.2 0 0
nas:/x /var/lib/with\040blank nfs rw 0 0
gpfs0 /var/lib/waldur gpfs rw 0 0
/dev/vdb /var/lib/waldur/local xfs rw 0 0
me@host: /mnt fuse.sshfs rw 0 0
strange line
"""
MOUNTS += "nas:/y /srv/a\u2028b nfs4 rw 0 0\n"


@pytest.mark.parametrize(
    ("place", "kind", "is_network"),
    [
        ("/", "ext4", False),
        ("/var/lib/other", "ext4", False),
        ("/home/me/state", "nfs4", True),
        ("/homes", "ext4", False),
        ("/var/lib/with blank/state", "nfs", True),
        ("/var/lib/waldur", "gpfs", True),
        ("/var/lib/waldur-two", "ext4", False),
        ("/var/lib/waldur/local/state", "xfs", False),
        ("/mnt/state", "fuse.sshfs", True),
        ("/srv/a\u2028b/state", "nfs4", True),
    ],
)
def test_the_longest_mount_point_wins_and_the_last_of_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str, is_network: bool
) -> None:
    assert type_of(Path(place), MOUNTS) == kind
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    assert mounts.network_type(Path(place)) == (kind if is_network else "")


def test_a_state_file_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(f"nas:/x {tmp_path} lustre rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    with pytest.raises(
        StateUnreadable, match=r"network file system \(lustre\).* local disk of this head node"
    ):
        pauses.pause(tmp_path / "state", offering(), by="ann")
    assert not (tmp_path / "state").exists()
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    pauses.pause(tmp_path / "state", offering(), by="ann")


def test_a_connection_that_is_kept_hides_no_network_mounted_over_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_open(tmp_path):
        pauses.pause(tmp_path, offering(), by="ann")
        (tmp_path / "mounts").write_text(f"nas:/x {tmp_path} lustre rw 0 0\n")
        monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
        other = shutil.copy(tmp_path / NAME, tmp_path / "other")
        os.replace(other, tmp_path / NAME)
        with pytest.raises(StateUnreadable, match="lustre"):
            pauses.pause(tmp_path, offering(), by="ann")


def test_links_are_followed_to_the_disk(tmp_path: Path) -> None:
    script = """
import subprocess, sys
from pathlib import Path
from agent.state import mounts
folder = Path(sys.argv[1])
(folder / "disk").mkdir()
if subprocess.run(["mount", "-t", "tmpfs", "none", folder / "disk"], check=False).returncode:
    sys.exit("cannot mount")
(folder / "link").symlink_to(folder / "disk")
link = folder / "link"
print(mounts.type_of(link.resolve(), mounts.MOUNTS.read_text()), repr(mounts.network_type(link)))
"""
    assert in_private_mounts(script, tmp_path).stdout == "tmpfs ''\n"


def test_config_check_names_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mounts").write_text(f"nas:/x {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mounts")
    site = Configuration(tmp_path)
    site.load(root(state_dir="state"))
    loaded = configuration.checked(site.file, {})
    assert loaded.settings is None
    (problem,) = [each for each in loaded.problems if each.path == "state_dir"]
    assert (problem.severity, "network file system (nfs4)" in problem.message) == (Severity.ERROR, True)
