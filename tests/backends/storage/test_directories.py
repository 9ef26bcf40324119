# SPDX-License-Identifier: MIT
"""Project directories: complete before they have their name, nothing that stands is touched, no link is followed."""

from __future__ import annotations

import os
import pwd
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, CommandFailed, NotApplied, ParseError, PlanRefused
from agent.core.host_actions import MakeProjectDirectory, SetProjectQuota
from backends.storage import directories
from backends.storage.directories import DirectoriesUnusable
from backends.storage.passwd import PasswdEntry
from tests.backends.storage.test_quotas import error_of
from tests.backends.storage.world import Fault, World

GID = 20500
LIMITS = (("bsoft", "900"), ("bhard", "1000"), ("ihard", "50"))
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="folders are given to other users by root only")


@pytest.fixture
def projects(world: World) -> Path:
    world.add_users("owner")
    world.file_systems(lustre="/lustre")
    folder = world.folder / "projects"
    folder.mkdir(mode=0o755)
    return folder


def make(projects: Path, account: str = "hpc_a", project_id: int = 0) -> MakeProjectDirectory:
    return MakeProjectDirectory(
        account=account,
        path=f"{projects}/{account}",
        owner="owner",
        group=account,
        gid=GID,
        mode="2770",
        has_acl=True,
        project_id=project_id,
    )


def quota(projects: Path, project_id: int = GID) -> SetProjectQuota:
    return SetProjectQuota(
        account="hpc_a", path=f"{projects}/hpc_a", project_id=project_id, mount_point="/lustre", limits=LIMITS
    )


def test_owner_group_mode_and_a_file_that_the_group_may_write(world: World, projects: Path) -> None:
    assert world.head_node().apply(make(projects)).error is None
    seen = (projects / "hpc_a").stat()
    owner = world.ask("owner")
    assert owner is not None
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (owner.uid, GID, 0o2770)
    assert os.listdir(projects) == ["hpc_a"]
    assert world.calls() == []
    # A member with the strictest umask, who is in the group: what is made belongs to it, and it may write there.
    script = "umask 0077; mkdir sub; : > sub/file; stat -c %g:%a sub sub/file"
    for folder in (world.folder, projects):
        folder.chmod(0o755)
    found = subprocess.run(
        ["sh", "-c", script], cwd=projects / "hpc_a", user=30001, group=30001, extra_groups=[GID],
        capture_output=True, text=True, check=True, timeout=600,
    ).stdout.split()  # fmt: skip
    assert found == [f"{GID}:2770", f"{GID}:660"]


def test_the_project_id_is_given_before_the_name_and_then_limited(world: World, projects: Path) -> None:
    host = world.head_node()
    assert host.apply(make(projects, project_id=GID)).error is None
    assert host.apply(quota(projects)).error is None
    assert world.calls() == [
        ["lfs", "project", "-p", str(GID), "-r", "-s", f"{projects}/.hpc_a.new"],
        ["lfs", "project", "-d", f"{projects}/hpc_a"],
        ["lfs", "setquota", "-p", str(GID), "-b", "900", "-B", "1000", "-I", "50", "/lustre"],
        ["lfs", "quota", "-q", "-p", str(GID), "/lustre"],
    ]
    assert world.kept("lustre") == {f"project {GID}": {"-b": "900", "-B": "1000", "-I": "50"}}


def test_the_present_quota_is_read_or_an_error(world: World, projects: Path) -> None:
    host = world.head_node()
    assert host.apply(make(projects, project_id=GID)).error is None
    assert host.apply(quota(projects)).error is None
    found = host.project_limits(GID, "/lustre")
    assert found == (("bsoft", "900"), ("bhard", "1000"), ("isoft", "0"), ("ihard", "50"))
    world.faults(Fault("lfs", "quota", code=0, stdout="no quota here"))
    with pytest.raises(ParseError):
        host.project_limits(GID, "/lustre")


def test_a_directory_of_another_project_keeps_its_quota(world: World, projects: Path) -> None:
    (projects / "hpc_a").mkdir()
    error = world.head_node().apply(quota(projects)).error
    assert isinstance(error, PlanRefused)
    assert "has the project id 0" in str(error)
    assert f"lfs project -p {GID} -r -s {projects}/hpc_a" in str(error)
    assert world.kept("lustre") == {}


def test_the_quota_of_a_group_needs_a_directory_of_the_group_and_no_project_id(
    world: World, projects: Path
) -> None:
    host, of_group = world.head_node(), replace(quota(projects), of_group=True)
    assert host.apply(make(projects)).error is None
    assert host.apply(of_group).error is None
    assert world.calls() == [
        ["lfs", "setquota", "-g", str(GID), "-b", "900", "-B", "1000", "-I", "50", "/lustre"],
        ["lfs", "quota", "-q", "-g", str(GID), "/lustre"],
    ]
    assert world.kept("lustre") == {f"group {GID}": {"-b": "900", "-B": "1000", "-I": "50"}}
    assert dict(host.project_limits(GID, "/lustre", of_group=True))["bhard"] == "1000"
    assert dict(host.project_limits(GID, "/lustre"))["bhard"] == "0"
    os.chown(projects / "hpc_a", 0, 0)
    error = host.apply(of_group).error
    assert isinstance(error, PlanRefused)
    assert f"belongs to the group 0, and {GID} is that of its account" in str(error)
    assert f"chgrp -R {GID} {projects}/hpc_a" in str(error)


def test_a_limit_that_lfs_does_not_show_is_not_applied(world: World, projects: Path) -> None:
    host = world.head_node()
    assert host.apply(make(projects, project_id=GID)).error is None
    world.faults(Fault("lfs", "setquota", code=0))
    error = host.apply(quota(projects)).error
    assert isinstance(error, NotApplied)
    assert "bsoft is 0, not 900" in str(error)


def test_what_was_cut_off_is_finished_later(world: World, projects: Path) -> None:
    world.faults(Fault("lfs", "project", code=5, stderr="I/O error\n"))
    assert "I/O error" in error_of(world.head_node().apply(make(projects, project_id=GID)))
    assert os.listdir(projects) == [".hpc_a.new"]
    world.faults()
    assert world.head_node().apply(make(projects, project_id=GID)).error is None
    assert os.listdir(projects) == ["hpc_a"]


def test_nothing_that_stands_is_touched(world: World, projects: Path) -> None:
    mine = projects / "hpc_a"
    mine.mkdir(mode=0o711)
    (mine / "data").touch()
    assert world.head_node().apply(make(projects)).error is None
    assert (mine.stat().st_uid, mine.stat().st_mode & 0o7777, os.listdir(mine)) == (0, 0o711, ["data"])
    unfinished = projects / ".hpc_b.new"
    unfinished.mkdir(mode=0o700)
    (unfinished / "data").touch()
    error = world.head_node().apply(make(projects, "hpc_b")).error
    assert isinstance(error, PlanRefused) and "is not empty" in str(error)
    assert os.listdir(unfinished) == ["data"]


def test_no_link_is_followed(world: World, projects: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir(mode=0o700)
    (projects / "hpc_a").symlink_to(away)
    (projects / ".hpc_b.new").symlink_to(away)
    (projects / "hpc_c").touch()
    (projects / "hpc_d").mkdir()
    found = directories.taken_places(str(projects), ["hpc_a", "hpc_b", "hpc_c", "hpc_d"])
    assert found == {
        "hpc_a": "it is a symbolic link, which is not followed", "hpc_c": "it is no folder", "hpc_d": "",
    }  # fmt: skip
    assert world.head_node().apply(make(projects)).error is None
    assert not world.head_node().apply(make(projects, "hpc_b")).done
    assert (away.stat().st_gid, away.stat().st_mode & 0o7777) == (0, 0o700)


@pytest.mark.parametrize("account", ["../x", "a/b", ".", "..", ".hpc", "-p", "a b", "a\n", "A", ""])
def test_a_name_that_is_none_reaches_no_folder(world: World, projects: Path, account: str) -> None:
    assert isinstance(world.head_node().apply(make(projects, account)).error, PlanRefused)
    assert os.listdir(projects) == []


def test_a_folder_where_others_write_is_not_used(world: World, projects: Path) -> None:
    projects.chmod(0o777)
    error = world.head_node().apply(make(projects)).error
    assert isinstance(error, DirectoriesUnusable) and "with mode 0777" in str(error)
    projects.chmod(0o755)
    os.chown(projects, pwd.getpwnam("nobody").pw_uid, -1)
    assert isinstance(world.head_node().apply(make(projects)).error, DirectoriesUnusable)
    missing = replace(make(projects), path=f"{projects}/none/hpc_a")
    error = world.head_node().apply(missing).error
    assert isinstance(error, DirectoriesUnusable) and "is its file system mounted?" in str(error)
    assert os.listdir(projects) == []


def test_an_owner_who_is_not_there(world: World, projects: Path) -> None:
    error = world.head_node().apply(replace(make(projects), owner="ghost")).error
    assert isinstance(error, PlanRefused) and "knows no user 'ghost'" in str(error)


def test_without_root_rights_it_is_no_accounts_fault(projects: Path) -> None:
    def look_up(name: str) -> PasswdEntry:
        return PasswdEntry(name, 20000, 20000, "/")

    os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        with pytest.raises(DirectoriesUnusable):
            directories.make(make(projects), look_up)
    finally:
        os.seteuid(0)


def test_lfs_hangs_or_is_not_there(world: World, projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.faults(Fault("lfs", hangs=True))
    error = world.head_node(leave_after_s=0.3).apply(quota(projects)).error
    assert isinstance(error, BackendUnavailable)
    world.let_go()
    world.faults()
    error = world.head_node().apply(quota(projects)).error
    assert isinstance(error, CommandFailed) and "failed to stat" in str(error)
