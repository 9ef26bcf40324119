# SPDX-License-Identifier: MIT
"""Plans for homes: what they show, what is done of what was shown, and which wait for a person."""

from __future__ import annotations

import json
from pathlib import Path

from agent.run import gate
from agent.run.people import homes
from agent.state.store import writing
from tests.agent.run.people.homes.conftest import XFS, HomeSite, planned


def test_a_plan_shows_and_does_nothing(homes_of: HomeSite, tmp_path: Path) -> None:
    world = homes_of.world
    world.add_users("ann", "bob")
    (world.homes / "bob").mkdir()
    world.file_systems(ceph=str(world.homes))
    homes_of.configure(
        homedir_base_path=str(world.homes), quota={"provider": "ceph_xattr", "max_bytes": "1T"}
    )
    plan = homes_of.plan("ann", "bob", "new", "no name")
    quota = f"(ceph_xattr) ceph.quota.max_bytes={2**40}  (none has been set yet)"
    assert plan.render().splitlines() == [
        f"make home {world.homes}/ann of ann with umask 0077  (there is no home yet)",
        f"set quota of ann on {world.homes}/ann {quota}",
        f"set quota of bob on {world.homes}/bob {quota}",
    ]
    assert world.calls() == []
    assert not homes_of.memory.exists()
    done = homes_of.provision("ann", "bob", "new", "no name")
    assert tuple(outcome.action for outcome in done.outcomes) == plan.actions
    assert not homes_of.plan("ann", "bob", "new", "no name")


def test_a_plan_asks_only_for_those_with_something_to_do(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob")
    homes_of.provision("ann")
    homes_of.world.forget_calls()
    assert [action.line().split()[-4] for action in homes_of.plan("ann", "bob")] == ["bob"]
    assert (homes_of.world.asked, homes_of.world.calls()) == (["bob"], [])


def test_a_plan_counts_users_who_could_not_be_looked_up(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob")
    late = planned(homes_of.site(), ["ann", "bob"], homes_of.world.head_node(), budget_s=0)
    assert (late.actions, late.unplanned) == ((), ["2 users could not be looked up: 0 s were not enough"])
    homes_of.world.trouble_from = "b"
    some = planned(homes_of.site(), ["ann", "bob"], homes_of.world.head_node())
    assert [action.line().split()[-4] for action in some.actions] == ["ann"]
    assert some.unplanned == ["1 users could not be looked up: cannot say who bob is: error 5"]


def test_what_no_person_was_shown_waits_for_the_next_pass(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann")
    shown = homes_of.plan("ann", "bob").actions
    world.add_users("bob")
    done = homes_of.provision("ann", "bob", shown=shown)
    assert (done.made, done.later, done.ok) == (["ann"], ["bob"], True)
    assert world.made() == {"ann"}
    nothing = homes_of.provision("ann", "bob", shown=())
    assert (nothing.counted(), world.made()) == ({"kept": 1, "later": 1}, {"ann"})
    assert homes_of.provision("ann", "bob").made == ["bob"]


def test_a_quota_that_was_shown_is_not_set_where_the_home_has_gone_since(homes_of: HomeSite) -> None:
    world = homes_of.world
    world.add_users("ann")
    world.file_systems(xfs="/xfs")
    (world.homes / "ann").mkdir()
    homes_of.configure(quota=XFS)
    shown = homes_of.plan("ann").actions
    assert [action.verb for action in shown] == ["set quota"]
    (world.homes / "ann").rmdir()
    assert homes_of.provision("ann", shown=shown).counted() == {"later": 1}
    assert world.calls() == []


def test_all_that_was_shown_is_done_however_much_it_is(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob", "cat")
    shown = homes_of.plan("ann", "bob", "cat").actions
    done = homes_of.provision("ann", "bob", "cat", shown=shown, at_most=1, budget_s=0)
    assert (done.made, done.later) == (["ann", "bob", "cat"], [])


def test_quotas_share_their_budget_with_what_a_pass_lowers_before_them(homes_of: HomeSite) -> None:
    homes_of.world.add_users("ann", "bob")
    homes_of.world.file_systems(xfs="/xfs")
    homes_of.configure(quota=XFS)
    homes_of.provision("ann", "bob")
    room = {"quotas_lowered": {"hour": 1, "day": 1}}
    homes_of.configure(quota={**XFS, "block_hardlimit": "5g"}, policy={"budgets": room})
    site, host = homes_of.site(), homes_of.world.head_node()
    rules = gate.rules_of(site)
    first, second = (planned(site, [name], host) for name in ("ann", "bob"))
    before = gate.decide_dry(site, rules, homes.KEY, first)
    assert before.allowed == first.actions
    assert gate.decide_dry(site, rules, homes.KEY, second).held == ()
    (held,) = gate.decide_dry(site, rules, homes.KEY, second, after=[before]).held
    assert held.actions == second.actions


def test_a_quota_that_is_wanted_no_more_is_forgotten_while_somebody_waits(homes_of: HomeSite) -> None:
    names = ("ann", "bob", "cid")
    homes_of.world.add_users(*names)
    homes_of.world.file_systems(xfs="/xfs")
    policy = {"budgets": {"quotas_lowered": {"hour": 1, "day": 1}}}
    lower = {**XFS, "block_hardlimit": "5g"}
    homes_of.configure(quota=XFS, policy=policy)
    homes_of.provision(*names, "new")
    homes_of.configure(quota=lower, policy=policy)
    homes_of.provision(*names, "new")
    (held,) = homes_of.waiting()
    homes_of.configure(quota=XFS, policy=policy)
    with writing(homes_of.state) as db:
        earlier = json.dumps(dict.fromkeys(held.seen_keys, "2026-01-01T00:00:00+00:00"))
        db.run("UPDATE held_plans SET keys = ?", earlier)
    report = homes_of.provision(*names, "new", is_whole=True)
    assert (report.waiting, homes_of.waiting()) == (["new"], [])
