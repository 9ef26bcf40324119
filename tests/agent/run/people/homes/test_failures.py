# SPDX-License-Identifier: MIT
"""What fails concerns one user or one tool, is logged with its command, and is tried again; passes are bounded."""

from __future__ import annotations

import pytest

from agent.core.errors import BackendUnavailable, ClusterBusy, CommandFailed
from agent.run.people import homes
from backends.process import CommandMissing
from backends.storage import programs
from rig.processes import wait_until
from tests.agent.run.people.homes.conftest import XFS, HomeSite, errors, warnings
from tests.backends.storage.world import Fault

# What fails ---------------------------------------------------------------------------------------


def test_a_failure_names_user_command_and_words_and_stops_no_other_user(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture
) -> None:
    world = homes_of.world
    world.add_users("ann", "bob", "cat")
    world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    world.faults(Fault("xfs_quota", "bhard=10g bob", stderr="xfs_quota: cannot set limits: No space\n"))
    report = homes_of.provision("ann", "bob", "cat")
    assert (report.made, report.limited) == (["ann", "bob", "cat"], ["ann", "cat"])
    assert isinstance(report.failed["bob"], CommandFailed)
    (line,) = warnings(caplog)
    assert line.startswith("failed: set quota of bob on /xfs (xfs) bhard=10g")
    assert "limit -u bhard=10g bob /xfs` ended with 1: xfs_quota: cannot set limits: No space" in line
    world.faults()
    world.forget_calls()
    again = homes_of.provision("ann", "bob", "cat")
    assert (again.made, again.limited, again.kept) == ([], ["bob"], 2)
    assert world.calls("mkhomedir_helper") == []


def test_without_a_home_there_is_no_quota(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann", "bob")
    world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    world.faults(Fault("mkhomedir_helper", "ann", code=6))
    report = homes_of.provision("ann", "bob")
    assert (report.made, report.limited, list(report.failed)) == (["bob"], ["bob"], ["ann"])
    assert set(world.kept("xfs")["/xfs"]) == {"bob"}


@pytest.mark.parametrize("tool", ["mkhomedir_helper", "xfs_quota"])
def test_a_missing_tool_is_one_clear_error(
    homes_of: HomeSite, tool: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = homes_of.world
    world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    monkeypatch.setattr(programs, "SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(world.bin))
    users = [f"user{number}" for number in range(20)]
    world.add_users(*users)
    (world.bin / tool).unlink()
    report = homes_of.provision(*users)
    (problem,) = report.problems
    assert isinstance(problem, CommandMissing)
    assert [len(errors(caplog)), len(warnings(caplog))] == [1, 0]
    assert f"{tool} is not on this head node" in errors(caplog)[0]
    assert (len(report.later), report.failed) == (20, {})
    assert len(report.made) == (0 if tool == "mkhomedir_helper" else 20)
    world.install(tool)
    assert len(homes_of.provision(*users).limited) == 20


def test_a_file_system_that_hangs_costs_one_patience_and_nothing_piles_up(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann", "bob")
    assert homes_of.provision("ann").made == ["ann"]
    world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    world.faults(Fault("xfs_quota", hangs=True))
    first = homes_of.provision("ann", "bob", leave_after_s=0.5)
    assert (first.made, first.later, first.ok) == ([], ["ann", "bob"], False)
    wait_until("the program hangs", lambda: bool(world.calls("xfs_quota")))
    second = homes_of.provision("ann", "bob", leave_after_s=0.5)
    assert isinstance(second.problems[0], BackendUnavailable)
    assert "another pass is at work, or hangs" in str(second.problems[0])
    assert (second.later, len(world.calls("xfs_quota"))) == (["ann", "bob"], 1)
    world.faults()
    world.let_go()
    wait_until("the program has ended", lambda: is_free(homes_of))
    third = homes_of.provision("ann", "bob")
    assert (third.made, third.limited) == (["bob"], ["ann", "bob"])


def is_free(homes_of: HomeSite) -> bool:
    try:
        with homes_of.world.head_node().lock:
            return True
    except ClusterBusy:
        return False


def test_many_failures_in_a_row_are_not_the_users_own(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "FAILURES_IN_A_ROW", 3)
    users = [f"user{number}" for number in range(9)]
    homes_of.world.add_users(*users)
    homes_of.configure(quota=XFS)
    report = homes_of.provision(*users)
    assert (len(report.failed), len(report.later), report.limited) == (3, 6, [])
    assert report.made == users, "homes do not wait for quotas"
    (problem,) = errors(caplog)
    assert problem.endswith("xfs failed 3 times in a row, the other users are left for later")
    assert set(homes_of.provision(*users).failed) == set(users[3:6]), "the others have their turn first"


# Bounds -------------------------------------------------------------------------------------------


def test_a_pass_is_bounded_and_the_next_ones_go_on(homes_of: HomeSite) -> None:
    users = [f"user{number:02}" for number in range(25)]
    homes_of.world.add_users(*users)
    counts = [homes_of.provision(*users, at_most=10).counted() for _ in range(4)]
    assert counts == [
        {"made": 10, "later": 15},
        {"kept": 10, "made": 10, "later": 5},
        {"kept": 20, "made": 5},
        {"kept": 25},
    ]


def test_homes_that_are_there_do_not_use_up_the_bound(homes_of: HomeSite) -> None:
    users = [f"user{number:02}" for number in range(25)]
    homes_of.world.add_users(*users)
    for user in users[:20]:
        (homes_of.world.homes / user).mkdir()
    assert homes_of.provision(*users, at_most=5).counted() == {"kept": 20, "made": 5}


def test_out_of_time_nothing_new_is_begun(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob")
    report = homes_of.provision("ann", "bob", budget_s=0.0)
    assert (report.counted(), report.ok) == ({"later": 2}, True)
    assert homes_of.world.calls() == []


def test_those_who_fail_do_not_keep_the_others_from_their_turn(homes_of: HomeSite) -> None:
    users = [f"bad{number}" for number in range(5)] + [f"good{number}" for number in range(5)]
    homes_of.world.add_users(*users)
    homes_of.world.faults(Fault("mkhomedir_helper", "bad", code=6))
    assert set(homes_of.provision(*users, at_most=5).failed) == set(users[:5])
    assert homes_of.provision(*users, at_most=5).made == users[5:]
