# SPDX-License-Identifier: MIT
"""Members, states and limits of standing accounts: the everyday pass, its brake, and what it costs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.run.preview import drift, previews
from agent.state import journal
from simulator.server.waldur import SimulatedWaldur
from tests.backends.moab.site.conftest import WorldFactory
from tests.backends.moab.site.world import World, scenario

MODE = Mode.MEMBERSHIP_SYNC
ALLOCATIONS = 500


def test_members_join_and_leave_and_the_journal_has_it(world: World) -> None:
    world.stand("a_one", "a_two")
    people = world.members("a_one")
    world.join("newbie")
    with world.mam.changed() as books:
        books.add_user("a_one", "stray")
    assert sorted(world.changes(world.sync(), reasons=False)) == [
        "add member newbie to a_one", "add member newbie to a_two", "remove member stray from a_one",
    ]  # fmt: skip
    assert world.members("a_one") == world.members("a_two") == {*people, "newbie"}
    world.leave("newbie")
    assert sorted(world.changes(world.sync(), reasons=False)) == [
        "remove member newbie from a_one", "remove member newbie from a_two",
    ]  # fmt: skip
    lines = list(journal.read(world.site_for(MODE).state_dir, journal.Query(user="newbie")))
    assert [line["outcome"] for line in lines] == ["done"] * 4
    assert lines[0]["commands"][0].endswith("mam-modify-account --add-user +newbie -a a_one")
    world.mam.watch()
    assert world.changes(world.sync(), reasons=False) == [] and world.mam.writes() == []


def test_default_accounts_move_before_their_account_is_left_where_the_site_lets_us(
    make_world: WorldFactory,
) -> None:
    world = make_world(backend={"manage_default_accounts": True})
    world.stand("a_one", "a_two")
    with world.mam.changed() as books:
        books.create_account("a_own")
        for name in ("a_one", "a_own"):
            books.add_user(name, "stray")
        books.users |= dict.fromkeys(world.members("a_two"), "")
    mine = sorted(world.members("a_two"))
    assert world.changes(world.sync(), reasons=False) == [
        *(f"move default account of {user} from none to a_one" for user in mine),
        "move default account of stray from a_one to a_own",
        "remove member stray from a_one",
    ]
    assert world.mam.books.users["stray"] == "a_own"


def test_too_many_leavers_wait_for_a_person(world: World) -> None:
    world.stand("a_one", "a_two")
    with world.mam.changed() as books:
        for number in range(9):
            books.add_user("a_one", f"old{number}")
    found = world.sync()
    (plan,) = found.held
    assert "9 of the 11 members of a_one would be removed at once" in plan.reason
    assert len(world.members("a_one")) == 11


def test_a_paused_resource_closes_its_account_only_where_the_site_lets_us(make_world: WorldFactory) -> None:
    world = make_world()
    (resource,) = world.stand("a_one")
    world.waldur.site.change("resources", resource, paused=True)
    assert world.changes(world.sync(), reasons=False) == []
    world.configure(backend={"deactivate_when_paused": True})
    assert world.changes(world.sync(), reasons=False)[0] == "block submission a_one"
    assert not world.mam.books.accounts["a_one"]["active"]
    assert world.waldur.resource(resource).backend_metadata == {"account_state": "closed"}
    assert world.changes(world.sync(), reasons=False) == []
    world.waldur.site.change("resources", resource, paused=False)
    assert world.changes(world.sync(), reasons=False)[0] == "allow submission a_one"
    assert world.mam.books.accounts["a_one"]["active"]
    assert world.waldur.resource(resource).backend_metadata == {"account_state": "open"}
    world.configure()
    with world.mam.changed() as books:
        books.activate("a_one", active=False)
    assert len(world.changes(world.sync(), reasons=False)) == 1, "what was reported once stays true"
    assert world.waldur.resource(resource).backend_metadata == {"account_state": "closed"}


def test_a_state_that_waits_or_failed_is_not_reported(make_world: WorldFactory) -> None:
    world = make_world(backend={"deactivate_when_paused": True}, policy={"mode": "upsert-only"})
    (resource,) = world.stand("a_one")
    world.waldur.site.change("resources", resource, paused=True)
    assert world.changes(world.sync(), reasons=False) == []
    world.configure(backend={"deactivate_when_paused": True})
    world.mam.faults({"needle": "mam-modify-account -I", "code": 1, "stderr": "Unknown option: -I\n"})
    world.sync()
    assert world.waldur.resource(resource).backend_metadata == {"account_state": "open"}


def test_the_state_of_an_account_that_is_not_ours_to_close_is_reported(world: World) -> None:
    (resource,) = world.stand("a_one")
    for active, state in ((False, "closed"), (True, "open")):
        with world.mam.changed() as books:
            books.activate("a_one", active=active)
        assert (
            len(world.changes(world.sync(), reasons=False)) == 1
            and world.changes(world.sync(), reasons=False) == []
        )
        assert world.waldur.resource(resource).backend_metadata == {"account_state": state}
    world.waldur.site.change("resources", resource, backend_metadata={}, paused=True)
    world.sync()
    assert world.waldur.resource(resource).backend_metadata == {"account_state": "open"}
    assert world.mam.writes() == []


def test_limits_of_single_users_are_noted_once_and_err_no_resource(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (resource,) = world.stand("a_one")
    world.join("newbie")
    world.sync()
    world.waldur.site.add_user_limit(resource, "newbie", component_type="deposit", limit=5)
    for _ in range(2):
        found = world.sync()
        assert (found.failed, found.in_step, world.changes(found, reasons=False)) == (False, 1, [])
    assert caplog.text.count("limits of single users are skipped") == 1


def test_limits_have_one_owner(make_world: WorldFactory) -> None:
    world = make_world()
    (resource,) = world.stand("a_one")
    with world.mam.changed() as books:
        books.deposit("18", 50_50)
    assert world.changes(world.sync(), reasons=False)[0].startswith("report limits")
    assert world.limits(resource) == {"deposit": 150}
    world.configure(limits_source="waldur")
    world.waldur.site.change("resources", resource, limits={"deposit": 200})
    assert world.changes(world.sync(), reasons=False) == ["set limits a_one deposit=150->200"]
    assert world.funds("a_one") == [("200.00", "200.00")]
    assert world.changes(world.sync(), reasons=False) == []


def test_an_account_without_its_fund_has_no_deposit_and_that_is_seen(
    make_world: WorldFactory, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(limits_source="waldur")
    world.stand("a_one")
    with world.mam.changed() as books:
        books.funds["18"]["constraints"]["User"] = "ann"
    assert drift.look(world.site_for(MODE), MODE).kinds == {"set limits": 1}
    assert world.changes(world.sync(), reasons=False) == ["set limits a_one deposit=0->100"]
    assert world.funds("a_one") == [("100.00", "100.00")]
    assert "it has no fund of its own in MAM" in caplog.text
    assert "funds that are not for it alone are not counted: 18 (Account=a_one,User=ann)" in caplog.text


def test_an_update_of_an_account_without_its_fund_is_a_raise_and_waits_for_no_approval(world: World) -> None:
    (resource,) = world.stand("a_one")
    with world.mam.changed() as books:
        del books.funds["18"]
    world.waldur.orders.place_update(resource, {"deposit": 150})
    world.processed(done=1)
    assert world.funds("a_one") == [("150.00", "150.00")]


def test_a_list_without_any_fund_takes_no_limit_from_anybody(world: World) -> None:
    (resource,) = world.stand("a_one")
    world.mam.faults({"needle": "mam-list-funds", "code": 0, "stdout": ""})
    assert world.changes(world.sync(), reasons=False) == []
    assert world.limits(resource) == {"deposit": 100}


def test_what_is_spent_already_keeps_no_resource_from_being_well(
    make_world: WorldFactory, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(limits_source="waldur", policy={"limit_cuts": "allow"})
    (resource,) = world.stand("a_one")
    world.charge("a_one", "ann", "70")
    world.waldur.site.change("resources", resource, limits={"deposit": 50})
    found = world.sync()
    assert not found.failed, found.as_json()
    assert [str(o.error)[:46] for o in found.outcomes if o.error] == [
        "the deposit of a_one is lowered to 70 and no f"
    ]
    assert world.funds("a_one") == [("70.00", "0.00")]
    world.mam.watch()
    for _ in range(2):
        found = world.sync()
        assert (found.outcomes, found.in_step) == ([], 1)
    assert world.mam.writes() == []
    assert caplog.text.count("limit deposit=50 is not reached: 70 of it is spent already") == 1
    assert world.waldur.resource(resource).state.value == "OK"


def test_plan_and_drift_show_the_difference_and_change_nothing(world: World) -> None:
    world.stand("a_one")
    with world.mam.changed() as books:
        books.add_user("a_one", "stray")
    before = world.mam.books.__dict__
    site = world.site_for(MODE)
    found = previews.preview(site, MODE)
    allowed = [action for action in found.allowed if action.verb == "remove member"]
    assert [action.render().split("  (")[0] for action in allowed] == ["remove member stray from a_one"]
    assert drift.look(site, MODE).kinds == {"remove member": 1}
    assert world.mam.books.__dict__ == before and world.mam.writes() == []


def test_an_outage_and_an_empty_answer_change_nothing(world: World) -> None:
    world.stand("a_one", "a_two")
    world.sync()
    before = world.mam.books.__dict__
    resources = [r.state for r in world.waldur.store.resources]
    for rule in ({"code": 1, "stderr": "no server\n"}, {"code": 0, "stdout": ""}):
        world.mam.faults({"needle": "mam-list-accounts", **rule})
        world.sync(fails=True)
    assert world.mam.books.__dict__ == before
    assert [r.state for r in world.waldur.store.resources] == resources


def test_an_idle_pass_over_500_accounts_starts_two_programs(tmp_path: Path) -> None:
    many = scenario(
        customers=2, projects_per_customer=ALLOCATIONS // 4, allocations_per_project=2, members_per_project=4
    )
    with SimulatedWaldur(scenario=many) as waldur:
        world = World(waldur, tmp_path)
        world.stand(*(f"a_{number}" for number in range(ALLOCATIONS)))
        for uuid in waldur.seed.resource_uuids:
            waldur.site.change("resources", uuid, last_sync=datetime.now(UTC))
        found = world.sync()
    assert found.in_step == ALLOCATIONS
    assert found.effort.commands == Counter(read=2)
    assert sorted(line.split()[0] for line in world.mam.calls()) == ["mam-list-accounts", "mam-list-funds"]
