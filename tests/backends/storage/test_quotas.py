# SPDX-License-Identifier: MIT
"""Quotas: the exact commands of each provider, what the strict tools keep of them, and what is read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, CommandFailed, NotApplied, PlanRefused
from agent.core.host_actions import SetQuota
from agent.core.plans import Outcome
from backends.process import CommandMissing
from backends.storage import programs, quotas
from rig.processes import wait_until
from tests.backends.storage.world import Fault, World

BOTH = (("ceph.quota.max_bytes", "1099511627776"), ("ceph.quota.max_files", "5000"))
ALL = (("bsoft", "9g"), ("bhard", "10g"), ("isoft", "900"), ("ihard", "1000"))


def ceph(world: World, user: str = "ann") -> SetQuota:
    """A quota on a Ceph folder that is there."""
    world.file_systems(ceph=str(world.homes))
    (world.homes / user).mkdir(exist_ok=True)
    return SetQuota(user=user, provider="ceph_xattr", place=str(world.homes / user), limits=BOTH)


def xfs(world: World, **changes: object) -> SetQuota:
    world.file_systems(xfs="/xfs")
    world.add_users("ann")
    return SetQuota(**{"user": "ann", "provider": "xfs", "place": "/xfs", "limits": ALL, **changes})


def lustre(world: World, **changes: object) -> SetQuota:
    world.file_systems(lustre="/lustre")
    world.add_users("ann")
    return SetQuota(**{"user": "ann", "provider": "lustre", "place": "/lustre", "limits": ALL, **changes})


def error_of(outcome: Outcome) -> str:
    assert isinstance(outcome.error, CommandFailed), outcome
    return str(outcome.error)


# Ceph ---------------------------------------------------------------------------------------------


def test_ceph_sets_and_reads_back_both_attributes(world: World) -> None:
    action = ceph(world)
    home = action.place
    assert world.head_node().apply(action).done
    assert world.calls() == [
        ["setfattr", "-h", "-n", "ceph.quota.max_bytes", "-v", "1099511627776", home],
        ["setfattr", "-h", "-n", "ceph.quota.max_files", "-v", "5000", home],
        ["getfattr", "-h", "--only-values", "-n", "ceph.quota.max_bytes", home],
        ["getfattr", "-h", "--only-values", "-n", "ceph.quota.max_files", home],
    ]
    assert world.kept("attributes") == {home: dict(BOTH)}


def test_ceph_shows_another_value(world: World) -> None:
    action = ceph(world)
    world.faults(Fault("getfattr", "max_files", code=0, stdout="4000\n"))
    error = world.head_node().apply(action).error
    assert isinstance(error, NotApplied)
    assert "shows '4000' where 5000 was set for ann" in str(error)


def test_ceph_that_cannot_be_read_back_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    action = ceph(world)
    world.faults(Fault("getfattr", "max_bytes", code=1, stderr="getfattr: x: Permission denied\n"))
    assert world.head_node().apply(action).done
    (record,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert "the quota of ann is set and could not be read back" in record.getMessage()
    assert "Permission denied" in record.getMessage()


def test_no_getfattr_is_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    action = ceph(world)
    (world.bin / "getfattr").unlink()
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(world.bin))
    assert world.head_node().apply(action).done
    assert "getfattr is not on this head node: it is in the package attr" in caplog.text


def test_a_folder_that_is_not_ceph(world: World) -> None:
    action = ceph(world)
    world.file_systems()
    said = error_of(world.head_node().apply(action))
    assert "setfattr -h -n ceph.quota.max_bytes" in said
    assert said.endswith("Operation not supported")


@pytest.mark.parametrize("kind", ["symbolic link", "missing", "file"])
def test_setfattr_is_never_led_elsewhere(world: World, kind: str, tmp_path: Path) -> None:
    action = ceph(world, "bob")
    home, elsewhere = Path(action.place), tmp_path / "elsewhere"
    elsewhere.mkdir()
    home.rmdir()
    if kind == "symbolic link":
        home.symlink_to(elsewhere)
    elif kind == "file":
        home.touch()
    error = world.head_node().apply(action).error
    assert isinstance(error, PlanRefused)
    assert "is not a folder of its own" in str(error)
    assert world.calls() == []


def test_setfattr_follows_no_link_that_comes_after_the_look(world: World, tmp_path: Path) -> None:
    action = ceph(world, "bob")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    world.swap(action.place, elsewhere)
    assert error_of(world.head_node().apply(action)).endswith("Operation not permitted")
    assert not (world.bin / "attributes").exists() and not (world.folder / "attributes").exists()


# XFS ----------------------------------------------------------------------------------------------


def test_xfs_takes_one_word_as_its_command(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert world.head_node().apply(xfs(world)).done
    assert world.calls() == [
        ["xfs_quota", "-x", "-c", "limit -u bsoft=9g bhard=10g isoft=900 ihard=1000 ann", "/xfs"],
        ["xfs_quota", "-x", "-c", "quota -u -N -b -h ann", "/xfs"],
    ]
    limits = {"bsoft": 9 << 30, "bhard": 10 << 30, "isoft": 900, "ihard": 1000}
    assert world.kept("xfs") == {"/xfs": {"ann": limits}}
    assert f"quota of ann on /xfs: /dev/sda1 0 {9 << 30} {10 << 30} 00 [------] /xfs" in caplog.text


def test_only_the_limits_that_are_given(world: World) -> None:
    assert world.head_node().apply(xfs(world, limits=(("ihard", "7"),))).done
    assert world.calls()[0][3] == "limit -u ihard=7 ann"
    assert world.kept("xfs") == {"/xfs": {"ann": {"ihard": 7}}}


def test_xfs_refuses_what_is_no_mount_point(world: World) -> None:
    said = error_of(world.head_node().apply(xfs(world, place="/xfs/home")))
    assert "`" in said and "limit -u bsoft=9g" in said
    assert "cannot setup path for mount /xfs/home: No such device or address" in said


def test_words_of_an_old_xfs_quota_that_ends_with_0_are_a_failure(world: World) -> None:
    action = xfs(world)
    world.faults(Fault("xfs_quota", "limit", code=0, stderr="xfs_quota: cannot set limits: Not permitted\n"))
    assert "cannot set limits: Not permitted" in error_of(world.head_node().apply(action))


def test_an_unknown_user(world: World) -> None:
    assert "invalid user name: bob" in error_of(world.head_node().apply(xfs(world, user="bob")))
    assert "unknown user 'bob'" in error_of(world.head_node().apply(lustre(world, user="bob")))


# Lustre -------------------------------------------------------------------------------------------


def test_lustre_takes_options(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert world.head_node().apply(lustre(world)).done
    options = ["-b", "9g", "-B", "10g", "-i", "900", "-I", "1000"]
    assert world.calls() == [
        ["lfs", "setquota", "-u", "ann", *options, "/lustre"],
        ["lfs", "quota", "-u", "ann", "/lustre"],
    ]
    assert world.kept("lustre") == {"ann": dict(zip(options[::2], options[1::2], strict=True))}
    assert "quota of ann on /lustre: Disk quotas for usr ann: /lustre 0 9g 10g" in caplog.text


def test_lustre_with_one_limit(world: World) -> None:
    assert world.head_node().apply(lustre(world, limits=(("bhard", "300000"),))).done
    assert world.calls("lfs")[0][1:] == ["setquota", "-u", "ann", "-B", "300000", "/lustre"]


def test_lustre_that_cannot_be_read_back_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    action = lustre(world)
    world.faults(Fault("lfs", "quota -u ann /lustre", code=5, stderr="lfs quota: I/O error\n"))
    assert world.head_node().apply(action).done
    assert "the quota of ann is set and could not be read back" in caplog.text


# All providers ------------------------------------------------------------------------------------

NAMES = [
    "",
    "a b",
    "ann bhard=0",
    "-g",
    "ann\n",
    "../ann",
    "a/b",
    "Ann",
    "ann;rm",
    'ann"',
    "9ann",
    "änn",
    "a" * 256,
]


@pytest.mark.parametrize("name", NAMES, ids=repr)
@pytest.mark.parametrize("provider", ["ceph_xattr", "xfs", "lustre"])
def test_a_name_that_is_none_reaches_no_tool(world: World, provider: str, name: str) -> None:
    limits = BOTH if provider == "ceph_xattr" else ALL
    action = SetQuota(user=name, provider=provider, place=str(world.homes), limits=limits)
    assert isinstance(world.head_node().apply(action).error, PlanRefused)
    assert world.calls() == []


def test_a_place_that_is_no_path_reaches_no_tool(world: World) -> None:
    assert isinstance(world.head_node().apply(xfs(world, place="-c")).error, PlanRefused)
    assert world.calls() == []


@pytest.mark.parametrize("tool", ["xfs_quota", "lfs", "setfattr"])
def test_a_tool_that_is_not_there(world: World, tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    action = {"xfs_quota": xfs, "lfs": lustre, "setfattr": ceph}[tool](world)
    (world.bin / tool).unlink()
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(world.bin))
    error = world.head_node().apply(action).error
    assert isinstance(error, CommandMissing)
    assert str(error).startswith(f"{tool} is not on this head node: it is in the package")


def test_a_file_system_that_does_not_answer(world: World) -> None:
    action = xfs(world)
    world.faults(Fault("xfs_quota", "limit", hangs=True))
    host = world.head_node(leave_after_s=0.5)
    error = host.apply(action).error
    assert isinstance(error, BackendUnavailable)
    assert "it is left to finish" in str(error)
    assert error.retryable
    world.let_go()
    wait_until("the program goes on by itself", lambda: bool(world.kept("xfs")))


def test_the_stand_in_keeps_no_soft_limit_above_the_hard_one_as_xfs(world: World) -> None:
    """Why the configuration refuses it: there is no word of it."""
    assert world.head_node().apply(xfs(world, limits=(("bsoft", "2g"), ("bhard", "1g")))).done
    assert world.kept("xfs") == {"/xfs": {"ann": {}}}


def test_commands_are_printed_as_a_shell_takes_them(world: World) -> None:
    assert world.head_node().commands(xfs(world)) == (
        "xfs_quota -x -c 'limit -u bsoft=9g bhard=10g isoft=900 ihard=1000 ann' /xfs",
    )
    assert world.calls() == []
    assert [check.argv[0] for check in quotas.commands(lustre(world)).checks] == ["lfs"]
