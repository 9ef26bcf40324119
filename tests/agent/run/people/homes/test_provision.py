# SPDX-License-Identifier: MIT
"""Homes are made once and limited once; whoever cannot have one yet waits, is logged once, and hinders no other."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agent.core.errors import PlanRefused
from agent.state import forget
from backends.storage.passwd import UserDatabaseUnavailable
from tests.agent.run.people.homes.conftest import XFS, HomeSite, errors, warnings
from tests.agent.state.obstacles import block
from tests.backends.storage.world import Fault, modes

# Once ---------------------------------------------------------------------------------------------


def test_a_home_is_made_once_and_an_idle_pass_starts_and_asks_nothing(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann", "bob")
    first = homes_of.provision("ann", "bob")
    assert (first.made, first.kept, first.ok) == (["ann", "bob"], 0, True)
    assert [outcome.action.render() for outcome in first.outcomes] == [
        f"make home {world.homes}/{name} of {name} with umask 0077  (there is no home yet)"
        for name in ("ann", "bob")
    ]
    assert modes(world.homes, ["ann", "bob"]) == {"ann": "0700", "bob": "0700"}
    world.forget_calls()
    written = homes_of.memory.stat().st_mtime_ns
    idle = homes_of.provision("ann", "bob")
    assert (idle.counted(), idle.outcomes, dict(idle.commands)) == ({"kept": 2}, [], {})
    assert (world.calls(), world.asked) == ([], [])
    assert homes_of.memory.stat().st_mtime_ns == written


def test_homes_that_are_there_cost_a_look_once(homes_of: HomeSite) -> None:
    """Also without a base path: the helper would look at the same place."""
    homes_of.world.add_users("ann")
    (homes_of.world.homes / "ann").mkdir()
    assert homes_of.provision("ann").counted() == {"kept": 1}
    assert homes_of.provision("ann").counted() == {"kept": 1}
    assert homes_of.world.calls() == []
    assert homes_of.world.asked == ["ann"]


def test_a_home_below_the_base_path_is_made_and_gets_its_quota(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann", "bob")
    world.file_systems(xfs="/xfs")
    (world.homes / "bob").mkdir()
    homes_of.configure(homedir_base_path=f"{world.homes}/", quota=XFS)
    report = homes_of.provision("ann", "bob")
    assert (report.made, report.limited) == (["ann"], ["ann", "bob"])
    assert set(world.kept("xfs")["/xfs"]) == {"ann", "bob"}


def test_the_umask_of_the_seeds_makes_a_home_for_its_owner_alone(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.configure(homedir_umask="0700")
    homes_of.provision("ann")
    assert modes(homes_of.world.homes, ["ann"]) == {"ann": "0700"}


def test_a_quota_is_set_once_and_again_when_it_changes(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann")
    world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    assert homes_of.provision("ann").limited == ["ann"]
    assert homes_of.provision("ann").outcomes == []
    homes_of.configure(quota={**XFS, "block_hardlimit": "20g"})
    again = homes_of.provision("ann")
    assert (again.made, again.limited) == ([], ["ann"])
    assert again.outcomes[0].action.reason == "the settings have changed"
    assert world.kept("xfs")["/xfs"]["ann"]["bhard"] == 20 << 30
    assert homes_of.provision("ann").outcomes == []
    assert len(world.calls("mkhomedir_helper")) == 1


def test_a_quota_that_is_no_longer_configured_is_left_as_it_is(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    homes_of.provision("ann")
    homes_of.world.forget_calls()
    homes_of.configure()
    assert homes_of.provision("ann").counted() == {"kept": 1}
    assert homes_of.world.calls() == []


def test_another_umask_changes_no_home_that_is_there(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.provision("ann")
    homes_of.configure(default_homedir_umask="0022")
    assert homes_of.provision("ann").outcomes == []
    assert modes(homes_of.world.homes, ["ann"]) == {"ann": "0700"}


def test_a_new_base_path_is_looked_at(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.provision("ann")
    homes_of.world.forget_calls()
    homes_of.configure(homedir_base_path=str(homes_of.world.homes))
    assert homes_of.provision("ann").counted() == {"kept": 1}
    assert homes_of.world.asked == ["ann"]


def test_again_makes_a_home_that_was_taken_away(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.provision("ann")
    (homes_of.world.homes / "ann" / ".profile").unlink()
    (homes_of.world.homes / "ann").rmdir()
    assert homes_of.provision("ann").counted() == {"kept": 1}
    assert homes_of.provision("ann", again=True).made == ["ann"]


def forget_all(site: HomeSite) -> None:
    forget.forget(site.state, "homes", site.offering.uuid)


@pytest.mark.parametrize(
    "lose", [lambda site: site.memory.unlink(), forget_all], ids=["the file is gone", "forgotten"]
)
def test_a_lost_memory_costs_repeated_work_only(homes_of: HomeSite, lose: Callable[[HomeSite], None]) -> None:
    homes_of.world.add_users("ann")
    homes_of.world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    homes_of.provision("ann")
    lose(homes_of)
    report = homes_of.provision("ann")
    assert (report.made, report.limited, report.ok) == ([], ["ann"], True)
    assert homes_of.provision("ann").outcomes == []


def test_a_memory_that_cannot_be_written_is_a_problem_and_stops_no_home(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    block(homes_of.state)
    report = homes_of.provision("ann")
    assert report.made == ["ann"]
    assert not report.ok
    assert homes_of.world.made() == {"ann"}


# Who waits ----------------------------------------------------------------------------------------


def test_a_user_whom_the_head_node_does_not_know_waits_and_is_logged_once(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture
) -> None:
    homes_of.world.add_users("ann")
    strangers = [f"new{number}" for number in range(7)]
    report = homes_of.provision("ann", *strangers)
    assert (report.made, report.waiting, report.ok) == (["ann"], strangers, True)
    assert report.counted() == {"made": 1, "waiting": 7}
    assert warnings(caplog) == [
        "homes of One wait for users that this head node does not know yet: new0, new1, new2, new3, new4 "
        "and 2 more (7 in all)"
    ]
    caplog.clear()
    homes_of.world.forget_calls()
    for _ in range(2):
        assert len(homes_of.provision("ann", *strangers).waiting) == 7
    assert caplog.records == []
    assert homes_of.world.asked == strangers * 2
    assert homes_of.world.calls() == []


def test_who_waits_as_before_is_looked_up_without_the_lock(homes_of: HomeSite) -> None:
    homes_of.provision("new1", "new2")
    with homes_of.world.head_node().lock:
        homes_of.world.forget_calls()
        report = homes_of.provision("new1", "new2")
        assert (report.waiting, report.ok, homes_of.world.asked) == (["new1", "new2"], True, ["new1", "new2"])
        homes_of.world.add_users("new1")
        assert not homes_of.provision("new1", "new2").ok
    assert homes_of.provision("new1", "new2").made == ["new1"]


def test_one_more_who_waits_is_news_and_one_who_has_come_is_made(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture
) -> None:
    homes_of.provision("new1")
    caplog.clear()
    homes_of.provision("new1", "new2")
    assert warnings(caplog) == [
        "homes of One wait for users that this head node does not know yet: new2 (2 in all)"
    ]
    caplog.clear()
    homes_of.world.add_users("new1")
    report = homes_of.provision("new1", "new2")
    assert (report.made, report.waiting) == (["new1"], ["new2"])
    assert warnings(caplog) == []


def test_a_pass_over_some_users_does_not_make_news_of_the_others(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture
) -> None:
    homes_of.provision("new1", "new2")
    caplog.clear()
    homes_of.provision("new2")
    homes_of.provision("new1", "new2")
    assert caplog.records == []


def test_trouble_of_the_user_database_is_unknown_and_not_absent(
    homes_of: HomeSite, caplog: pytest.LogCaptureFixture
) -> None:
    homes_of.world.add_users("ann", "bob")
    homes_of.world.trouble_from = "b"
    report = homes_of.provision("ann", "bob", "cat", "dan")
    assert (report.made, report.waiting, report.unknown) == (["ann"], [], ["bob", "cat", "dan"])
    assert not report.ok
    assert isinstance(report.problems[0], UserDatabaseUnavailable)
    assert len(errors(caplog)) == 1
    assert warnings(caplog) == []
    # Who gets a home is looked up once more before that.
    assert homes_of.world.asked == ["ann", "bob", "ann"], "a directory that does not answer is asked once"
    homes_of.world.trouble_from = ""
    assert homes_of.provision("ann", "bob").made == ["bob"]


@pytest.mark.parametrize(
    "name", ["a b", "../etc", "ann/x", "-ann", "änn", "9ann", "ann bhard=0", "a\nb"], ids=repr
)
def test_a_name_that_is_none_is_refused_before_anybody_hears_it(
    homes_of: HomeSite, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    homes_of.world.add_users("ann", name)
    report = homes_of.provision("ann", name)
    assert report.made == ["ann"]
    assert isinstance(report.failed[name], PlanRefused)
    assert set(homes_of.world.asked) == {"ann"}
    assert len(warnings(caplog)) == 1
    assert all("\n" not in record.getMessage() for record in caplog.records)
    caplog.clear()
    assert not homes_of.provision("ann", name).ok
    assert caplog.records == []


def test_names_are_in_the_clusters_spelling(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    assert homes_of.provision("Ann", "ann").made == ["ann"]


def test_users_whom_the_policy_leaves_alone_get_nothing(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "svc_x", "boss")
    homes_of.configure(policy={"ignore_users": ["svc_*"], "protected_users": ["boss"]})
    assert homes_of.provision("ann", "svc_x", "boss", "root").counted() == {"made": 1}
    assert set(homes_of.world.asked) == {"ann"}


@pytest.mark.parametrize("uid_0", [True, False])
def test_homes_in_trouble_are_failures_logged_once(
    homes_of: HomeSite, uid_0: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = homes_of.world
    world.add_users("ann")
    homes_of.configure(homedir_base_path=str(world.homes), quota=XFS)
    if uid_0:
        (world.folder / "users").write_text(json.dumps({"ann": [0, "/root"]}))
    else:
        (world.homes / "ann").symlink_to("/etc")
    news = []
    for _ in range(2):
        report = homes_of.provision("ann")
        assert isinstance(report.failed["ann"], PlanRefused)
        assert set(report.refused) == {"ann"}
        news.append(report.newly_logged)
    assert news == [["ann"], []]
    assert world.calls() == []
    assert len(warnings(caplog)) == 1


# Off, and reported --------------------------------------------------------------------------------


def test_homes_that_are_switched_off(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann")
    homes_of.configure(enable_user_homedir_account_creation=False, quota=XFS)
    assert homes_of.provision("ann").counted() == {}
    assert not homes_of.plan("ann")
    assert (homes_of.world.calls(), homes_of.world.asked) == ([], [])


def test_the_report_as_json(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob")
    homes_of.world.faults(Fault("mkhomedir_helper", "bob", code=6))
    document = json.loads(json.dumps(homes_of.provision("ann", "bob", "new").as_json()))
    assert {key: document[key] for key in ("made", "quotas", "waiting", "kept", "later", "unknown")} == {
        "made": ["ann"], "quotas": [], "waiting": ["new"], "kept": 0, "later": [], "unknown": [],
    }  # fmt: skip
    assert "ended with 6" in document["failed"]["bob"]
    assert [action["action"] for action in document["actions"]] == ["MakeHome", "MakeHome"]
    assert [action["error"] is None for action in document["actions"]] == [True, False]
    assert document["commands"] == {"write": 2}
