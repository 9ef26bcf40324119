# SPDX-License-Identifier: MIT
"""Homes: which one it is, whether it is there, and that the program really made it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from agent.core.errors import BackendUnavailable, CommandFailed, NotApplied, PlanRefused
from agent.core.homes import Home, HomeQuota, HomeRules, QuotaProvider, home_problem
from agent.core.host_actions import MakeHome
from backends.lock import WriteLock
from backends.process import CommandMissing
from backends.storage import passwd, programs
from backends.storage.homes import HeadNode, RootNeeded, observe_home
from backends.storage.passwd import PasswdEntry
from backends.storage.programs import HELPER, Programs
from rig.parts import require
from tests.backends.storage.test_quotas import NAMES
from tests.backends.storage.world import Fault, World, modes


def make(world: World, user: str = "ann", umask: str = "0077") -> MakeHome:
    return MakeHome(user=user, path=str(world.homes / user), umask=umask)


# Made ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("umask", "mode"), [("0077", "0700"), ("0027", "0750"), ("0022", "0755")])
def test_the_helper_gets_the_user_and_the_umask(world: World, umask: str, mode: str) -> None:
    world.add_users("ann")
    outcome = world.head_node().apply(make(world, umask=umask))
    assert outcome.done
    assert world.calls() == [["mkhomedir_helper", "ann", umask]]
    assert outcome.commands == (f"{world.bin}/mkhomedir_helper ann {umask}",)
    assert modes(world.homes, ["ann"]) == {"ann": mode}


def test_a_home_that_is_there_is_not_touched(world: World) -> None:
    world.add_users("ann")
    home = world.homes / "ann"
    home.mkdir(mode=0o711)
    (home / "mine").touch()
    assert world.head_node().apply(make(world)).done
    assert [path.name for path in home.iterdir()] == ["mine"]
    assert modes(world.homes, ["ann"]) == {"ann": "0711"}


@pytest.mark.parametrize(
    ("code", "words"),
    [(10, "does not know the user"), (6, "may root write in the folder above"), (77, "no output")],
)
def test_what_the_number_of_the_helper_means(world: World, code: int, words: str) -> None:
    world.add_users("ann")
    world.faults(Fault("mkhomedir_helper", "ann", code=code))
    error = world.head_node().apply(make(world)).error
    assert isinstance(error, CommandFailed)
    assert f"mkhomedir_helper ann 0077` ended with {code}: " in str(error)
    assert words in str(error)


def test_an_end_with_0_is_not_believed(world: World) -> None:
    world.add_users("ann")
    world.faults(Fault("mkhomedir_helper", code=0))
    error = world.head_node().apply(make(world)).error
    assert isinstance(error, NotApplied)
    assert f"there is no folder {world.homes}/ann" in str(error)


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_name_that_is_none_reaches_no_program(world: World, name: str) -> None:
    assert isinstance(world.head_node().apply(make(world, name)).error, PlanRefused)
    assert world.calls() == []


def test_no_helper(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_users("ann")
    (world.bin / "mkhomedir_helper").unlink()
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(world.bin))
    error = world.head_node().apply(make(world)).error
    assert isinstance(error, CommandMissing)
    assert "libpam-modules-bin (Debian)" in str(error)


def test_without_root_rights_it_is_no_users_fault(tmp_path: Path) -> None:
    """The real helper, for the user nobody as that user: a home directly below / cannot be made."""
    require("mkhomedir_helper")
    nobody = pwd.getpwnam("nobody")
    if os.geteuid() != 0 or Path(nobody.pw_dir).exists():
        pytest.skip("needs root rights, and a nobody without a home")
    host = HeadNode(WriteLock(tmp_path, "homes"))
    with host.lock:
        os.seteuid(nobody.pw_uid)
        try:
            error = host.apply(MakeHome(user="nobody", path=nobody.pw_dir, umask="0077")).error
        finally:
            os.seteuid(0)
    assert isinstance(error, RootNeeded)
    assert "Run the agent as root" in str(error)
    assert not Path(nobody.pw_dir).exists()


def test_a_helper_that_hangs_is_left_to_itself_and_keeps_the_lock(world: World) -> None:
    world.add_users("ann", "bob")
    world.faults(Fault("mkhomedir_helper", "ann", hangs=True))
    assert isinstance(world.head_node(leave_after_s=0.5).apply(make(world)).error, BackendUnavailable)
    error = world.head_node().apply(make(world, "bob")).error
    assert isinstance(error, BackendUnavailable) or "another write has held" in str(error)
    assert world.made() == set()
    world.let_go()


def test_the_helper_is_where_the_reference_has_it_else_on_path(world: World) -> None:
    assert HELPER == "/sbin/mkhomedir_helper"
    assert Programs(str(world.bin / "mkhomedir_helper")).find("mkhomedir_helper").startswith(str(world.bin))
    assert Programs("/no/such/helper").find("mkhomedir_helper") == str(world.bin / "mkhomedir_helper")


# Looked at ----------------------------------------------------------------------------------------


def entry(home: Path | str, uid: int = 20000) -> PasswdEntry:
    return PasswdEntry("ann", uid, uid, str(home))


def test_the_home_of_the_user_database(tmp_path: Path) -> None:
    home = tmp_path / "x"
    assert observe_home(entry(home), HomeRules()) == Home("ann", str(home), made_at=str(home))
    home.mkdir()
    assert observe_home(entry(home), HomeRules()).exists


def test_the_home_below_the_base_path(tmp_path: Path) -> None:
    base = tmp_path / "base"
    seen = observe_home(entry("/nowhere/ann"), HomeRules(base_path=str(base)))
    assert seen == Home("ann", f"{base}/ann", made_at="/nowhere/ann")
    (base / "ann").mkdir(parents=True)
    assert observe_home(entry("/nowhere/ann"), HomeRules(base_path=str(base))).exists


def test_a_home_at_the_place_of_the_user_database_needs_no_helper(tmp_path: Path) -> None:
    (tmp_path / "ann").mkdir()
    assert observe_home(entry(tmp_path / "ann"), HomeRules(base_path="/no/base")).exists


def test_a_link_below_the_base_path_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "base" / "ann").symlink_to(tmp_path / "elsewhere")
    seen = observe_home(entry(tmp_path / "base" / "ann"), HomeRules(base_path=str(tmp_path / "base")))
    assert not seen.exists
    assert "it is a symbolic link, which is not followed" in seen.trouble


def test_a_base_path_that_is_a_link_is_the_sites_own_choice(tmp_path: Path) -> None:
    (tmp_path / "real" / "ann").mkdir(parents=True)
    (tmp_path / "base").symlink_to(tmp_path / "real")
    assert observe_home(entry("/nowhere/ann"), HomeRules(base_path=str(tmp_path / "base"))).exists


@pytest.mark.parametrize("base", [True, False])
def test_a_file_in_the_place_of_a_home(tmp_path: Path, base: bool) -> None:
    (tmp_path / "ann").touch()
    seen = observe_home(entry(tmp_path / "ann"), HomeRules(base_path=str(tmp_path) if base else ""))
    assert (seen.exists, seen.trouble) == (False, f"{tmp_path}/ann cannot be the home: it is not a folder")


def test_a_file_in_the_place_of_the_folder_of_homes(tmp_path: Path) -> None:
    (tmp_path / "base").touch()
    assert "Not a directory" in observe_home(entry(tmp_path / "base" / "ann"), HomeRules()).trouble


@pytest.mark.parametrize("home", ["", "/", "//", "home/ann", "/home/../etc", "/home/./ann"])
def test_a_home_that_no_user_should_have(home: str) -> None:
    assert "the user database gives" in observe_home(entry(home), HomeRules()).trouble


BASES = ("/home", "/data/home")


@pytest.mark.parametrize(
    ("home", "bases", "words"),
    [
        ("/home/ann", BASES, ""),
        ("/data/home/ann/", BASES, ""),
        ("/home", BASES, "not directly below /home or /data/home (homedir_bases)"),
        ("/home/a/ann", BASES, "not directly below"),
        ("/home/.ssh", BASES, "not directly below"),
        ("/etc/systemd/system/cron.service.d", BASES, "not directly below"),
        ("/home/../etc/ann", BASES, "none that a person can have"),
        ("/home/ann\n", BASES, "none that a person can have"),
        ("/data/home/ann", (), ""),
        ("/var/home/ann", (), ""),
        ("//data//ann", (), ""),
        ("/etc/systemd/system/cron.service.d", (), "in /etc, which is the system's (homedir_bases)"),
        ("//etc/cron.d", (), "in /etc"),
        ("/root/ann", (), "in /root"),
        ("/var/spool/cron", (), "in /var/spool"),
        ("/usr/local/home/ann", (), "in /usr"),
        ("/usr/local/home/ann", ("/usr/local/home",), ""),
        ("/etcetera/ann", (), ""),
    ],
)
def test_where_homes_may_be(home: str, bases: tuple[str, ...], words: str) -> None:
    problem = home_problem(home, bases)
    assert (words in problem) if words else (problem == "")
    seen = observe_home(entry(home), HomeRules(bases=bases))
    assert bool(seen.trouble) is (bool(words) and not seen.exists)


def test_a_home_that_is_there_is_asked_about_where_root_would_change_it(tmp_path: Path) -> None:
    """Another agent has made it; only a quota of Ceph is the folder's own."""
    home = tmp_path / "elsewhere" / "ann"
    home.mkdir(parents=True)
    limits = (("ceph.quota.max_files", "9"),)
    ceph, xfs = (HomeQuota(kind, limits, "/x") for kind in (QuotaProvider.CEPH_XATTR, QuotaProvider.XFS))
    for quota, is_left_alone in ((None, False), (xfs, False), (ceph, True)):
        seen = observe_home(entry(home), HomeRules(bases=("/home",), quota=quota))
        assert (seen.exists, bool(seen.trouble)) == (True, is_left_alone)
    based = HomeRules(base_path=str(home.parent), bases=(str(home.parent),), quota=ceph)
    assert observe_home(entry("/nowhere/ann"), based).trouble == ""


def test_nothing_is_made_where_the_user_database_names_another_home_by_then(world: World) -> None:
    world.add_users("ann", home="/etc/systemd/system/cron.service.d")
    error = world.head_node().apply(make(world)).error
    assert isinstance(error, PlanRefused)
    assert "the user database gives '/etc/systemd/system/cron.service.d' now" in str(error)
    assert world.calls() == []


@pytest.mark.parametrize("uid", [0, 1, 99, 100, 999, 65534, 65535, 2**32 - 2, 2**32 - 1])
def test_users_of_the_system_are_left_alone(tmp_path: Path, uid: int) -> None:
    seen = observe_home(entry(tmp_path, uid), HomeRules(base_path=str(tmp_path)))
    assert "belongs to the system itself" in seen.trouble


@pytest.mark.parametrize("name", ["root", "nobody", "munge", "slurm"])
def test_users_that_services_run_as_are_left_alone_whatever_their_number(tmp_path: Path, name: str) -> None:
    served = PasswdEntry(name, 64030, 64030, str(tmp_path))
    assert "belongs to the system itself" in observe_home(served, HomeRules(base_path=str(tmp_path))).trouble


@pytest.mark.parametrize("uid", [1000, 20000, 64030, 65533, 65536, 1_234_567, 2**31])
def test_people_of_a_directory_have_any_other_number(tmp_path: Path, uid: int) -> None:
    assert observe_home(entry(tmp_path, uid), HomeRules(base_path=str(tmp_path))).trouble == ""


@pytest.mark.parametrize("home", ["/nonexistent", "/nonexistent/", "/var/empty"])
def test_a_home_that_says_that_there_is_none_is_not_made(home: str) -> None:
    assert observe_home(entry(home), HomeRules()).trouble == f"the user database gives {home!r} as its home"


@pytest.mark.parametrize("name", [user.pw_name for user in pwd.getpwall() if user.pw_uid < 1000][:30])
def test_users_of_this_hosts_system_get_nothing(name: str) -> None:
    known = passwd.lookup(name)
    assert known is not None
    assert observe_home(known, HomeRules()).trouble
