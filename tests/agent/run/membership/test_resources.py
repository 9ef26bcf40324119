# SPDX-License-Identifier: MIT
"""What is reported to Waldur of a resource, and where its account stands."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agent.core.actions import AddMember, SetQos
from agent.core.errors import CommandDenied
from agent.core.model import Account
from agent.core.plans import Outcome
from tests.agent.run.membership.conftest import WorldFactory
from tests.world import World

TEAM = {"ffrost5", "ggran6", "hholt7"}
BY_QOS = {"qos_default": "normal", "qos_downscaled": "slow", "qos_paused": "stop"}
MISSING = "is not on the cluster"


def parent(world: World, account: str) -> str | None:
    return world.cluster.accounts[account].parent


def posts(world: World, action: str) -> int:
    return world.waldur.requests.count(f"POST marketplace-provider-resources/*/{action}/")


class TestReports:
    def test_metadata_is_written_when_it_differs_and_other_keys_stay(self, make_world: WorldFactory) -> None:
        world = make_world(backend=BY_QOS)
        resource = world.allocate("one")
        world.change(resource, backend_metadata={"note": "by hand"})
        world.alter("a_one", qos=frozenset({"normal"}), default_qos="normal")
        world.sync()
        assert world.resource(resource).backend_metadata == {"note": "by hand", "qos": "normal"}
        world.in_step()

    def test_last_sync_is_refreshed_after_half_an_hour_or_a_bit_more_and_not_before(
        self, world: World
    ) -> None:
        resource = world.allocate("one")
        world.converge()
        for minutes, refreshed in ((29, 0), (46, 1), (0, 0)):
            if minutes:
                world.change(resource, last_sync=datetime.now(UTC) - timedelta(minutes=minutes))
            world.waldur.requests.reset()
            world.sync()
            assert posts(world, "refresh_last_sync") == refreshed, minutes

    def test_an_erred_resource_whose_account_agrees_is_healed(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.change(resource, state="Erred", error_message="once upon a time")
        world.sync()
        assert world.resource(resource).state.value == "OK"
        assert world.resource(resource).error_message == ""
        world.in_step()

    def test_a_missing_account_is_reported_once_and_its_resource_is_left_as_it_is(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        resource = world.allocate("one")
        world.converge()
        world.change(resource, backend_id="a_gone", last_sync=datetime.now(UTC) - timedelta(hours=2))
        with caplog.at_level(logging.WARNING):
            world.in_step()
            world.in_step()
        assert caplog.text.count(f"account a_gone {MISSING}") == 1
        assert world.resource(resource).state.value == "OK"

    def test_a_missing_account_heals_nothing(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.change(resource, backend_id="a_gone", state="Erred", error_message="gone")
        world.in_step()
        assert world.resource(resource).state.value == "Erred"

    def test_the_sites_own_accounts_are_no_allocations(
        self, make_world: WorldFactory, caplog: pytest.LogCaptureFixture
    ) -> None:
        world = make_world(policy={"protected_accounts": []})
        resource = world.allocate("one")
        world.converge()
        world.stray("admin1", "root")
        world.change(resource, backend_id="root")
        world.in_step()
        assert world.members("root") == {"admin1"}
        assert "account root is no allocation" in caplog.text


class TestTrouble:
    def test_a_refused_member_is_reported_and_harms_no_other(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One bad name in fifty: the other forty-nine are in, an operator learns whose it is, the resource is fine."""
        resource = world.allocate("one")
        world.converge()
        for number in range(49):
            world.join(f"good{number}")
        world.join("culprit")
        world.change(resource, state="Erred", last_sync=datetime.now(UTC) - timedelta(hours=1))
        world.backend.refuses = lambda a: isinstance(a, AddMember) and a.user == "culprit"
        report = world.sync()
        assert world.members("a_one") == TEAM | {f"good{number}" for number in range(49)}
        assert [(r.result, "culprit" in r.message) for r in report.resources] == [("stuck", True)]
        assert "failed: add member culprit to a_one" in caplog.text
        assert world.resource(resource).state.value == "OK"
        world.waldur.requests.reset()
        assert world.sync().failed, "until an operator looks after it"
        assert world.waldur.requests.count("POST *") == 0
        world.backend.refuses = lambda _: False
        world.sync()
        assert "culprit" in world.members("a_one")
        world.in_step()

    def test_an_account_that_takes_no_member_errs_its_resource(self, world: World) -> None:
        resource = world.allocate("one")
        for user in TEAM:
            world.leave(user)
        world.backend.state = replace(world.cluster, associations=frozenset(), default_accounts={})
        world.converge()
        world.join("newcomer")
        world.backend.refuses = lambda a: isinstance(a, AddMember)
        world.sync()
        assert world.resource(resource).state.value == "Erred"
        assert world.resource(resource).error_message.startswith("add member newcomer to a_one: ")

    def test_a_missing_right_on_the_cluster_errs_no_resource(self, make_world: WorldFactory) -> None:
        world = make_world(backend=BY_QOS)
        resource = world.allocate("one")
        world.converge()
        world.change(resource, paused=True)
        denied = CommandDenied(["sacctmgr"], returncode=1, stdout="", stderr="Access/permission denied")
        apply = world.backend.apply
        world.backend.apply = lambda actions: [Outcome(action, denied) for action in actions]  # type: ignore[method-assign]
        report = world.sync()
        assert report.counted() == {"stuck": 1}
        assert world.resource(resource).state.value == "OK"
        world.backend.apply = apply  # type: ignore[method-assign]
        assert [o.action for o in world.sync().outcomes if isinstance(o.action, SetQos)]

    def test_a_cluster_that_says_yes_and_does_nothing_is_noticed_and_no_resource_is_erred(
        self, world: World
    ) -> None:
        resource = world.allocate("one")
        world.converge()
        world.join("newcomer")
        apply = world.backend.apply
        world.backend.apply = lambda actions: [Outcome(action) for action in actions]  # type: ignore[method-assign]
        report = world.sync()
        assert report.counted() == {"retry": 1}
        assert "the cluster does not show it: add member newcomer" in report.resources[0].message
        assert world.resource(resource).state.value == "OK"
        world.backend.apply = apply  # type: ignore[method-assign]
        world.sync()
        assert "newcomer" in world.members("a_one")

    def test_jobs_that_have_not_ended_keep_their_user_and_no_other(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.backend.state = replace(
            world.cluster, active_jobs={"a_one": 2}, active_users={("a_one", "ggran6"): 2}
        )
        world.backend.memory.jobs_never_end = True
        world.leave("ggran6")
        world.leave("hholt7")
        report = world.sync()
        assert report.counted() == {"retry": 1}
        assert world.members("a_one") == {"ffrost5", "ggran6"}
        assert world.resource(resource).state.value == "OK"
        world.backend.memory.jobs_never_end = False
        world.sync()
        assert world.members("a_one") == {"ffrost5"}
        world.in_step()


class TestOrders:
    def test_a_resource_that_is_being_terminated_is_left_alone(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.waldur.orders.place_terminate(resource)
        world.change(resource, state="OK")
        world.leave("ggran6")
        world.in_step()
        assert world.members("a_one") == TEAM

    def test_a_resource_that_an_order_is_at_work_on_is_left_alone(self, world: World) -> None:
        resource = world.allocate("one")
        world.allocate("two", project=1)
        world.converge()
        world.change(resource, state="Updating")
        world.leave("ggran6")
        world.in_step()
        assert world.members("a_one") == TEAM
        world.change(resource, state="OK")
        world.sync()
        assert world.members("a_one") == TEAM - {"ggran6"}


class TestPlace:
    def test_a_project_that_moves_to_another_customer_takes_its_account_along(self, world: World) -> None:
        world.allocate("one")
        world.allocate("two")
        world.converge()
        with world.waldur.store.lock:
            customer = world.waldur.store.customers.add(
                replace(world.waldur.store.customers[world.waldur.seed.customer_uuids[0]], uuid="c" * 32)
            )
            customer.slug, customer.name = "new-house", "New House"
        project = world.waldur.seed.project_uuids[0]
        world.waldur.site.change("projects", project, customer_uuid=customer.uuid)
        world.sync()
        assert parent(world, "p_project-1-1") == "c_new-house"
        assert parent(world, "c_new-house") == "root"
        assert parent(world, "a_one") == parent(world, "a_two") == "p_project-1-1"
        assert world.members("a_one") == TEAM
        world.in_step()

    def test_an_allocation_below_the_wrong_project_is_put_below_its_own(self, world: World) -> None:
        world.allocate("one")
        world.allocate("two", project=1)
        world.converge()
        world.alter("a_one", parent="p_project-1-2")
        world.sync()
        assert parent(world, "a_one") == "p_project-1-1"
        world.in_step()

    def test_an_allocation_whose_project_account_is_gone_gets_it_back(self, world: World) -> None:
        world.allocate("one")
        world.converge()
        accounts = {name: a for name, a in world.cluster.accounts.items() if name != "p_project-1-1"}
        accounts["a_one"] = replace(accounts["a_one"], parent="root")
        world.backend.state = replace(world.cluster, accounts=accounts)
        world.sync()
        assert parent(world, "a_one") == "p_project-1-1"
        assert parent(world, "p_project-1-1") == "c_kask-institute-1"
        world.in_step()

    def test_the_flat_mode_moves_nothing(self, make_world: WorldFactory) -> None:
        world = make_world(backend={"parent_account": "flat"})
        world.backend.state = replace(
            world.cluster, accounts={**world.cluster.accounts, "flat": Account("flat", "root")}
        )
        world.allocate("one")
        world.converge()
        world.alter("p_project-1-1", parent="root")
        world.in_step()
        assert parent(world, "p_project-1-1") == "root"

    def test_a_resource_without_slugs_stays_where_it_is_and_keeps_its_members(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.allocate("one")
        world.converge()
        world.waldur.site.change("projects", world.waldur.seed.project_uuids[0], slug="")
        world.join("newcomer")
        world.sync()
        assert "newcomer" in world.members("a_one")
        assert parent(world, "a_one") == "p_project-1-1"
        assert "its place is not looked at" in caplog.text
        world.in_step()


class TestLostNames:
    def test_a_resource_that_lost_its_account_gets_it_back(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.change(resource, backend_id="")
        world.sync()
        assert world.resource(resource).backend_id == "a_one"
        world.in_step()

    @pytest.mark.parametrize("state", ["OK", "Updating", "Terminated"])
    def test_not_when_another_resource_names_the_account(self, world: World, state: str) -> None:
        resource, other = world.allocate("one"), world.allocate("two", project=1)
        world.converge()
        world.change(resource, backend_id="")
        world.change(other, backend_id="a_one", state=state)
        world.sync()
        assert world.resource(resource).backend_id == ""

    def test_not_when_two_resources_would_get_the_same_one(self, world: World) -> None:
        options = {"account_name_generation_policy": "project_slug"}
        world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, plugin_options=options)
        first, second = world.place("one", "two")
        world.processed(done=2)
        for resource in (first, second):
            world.change(resource, backend_id="")
        world.in_step()
        assert world.resource(first).backend_id == world.resource(second).backend_id == ""

    def test_not_when_the_account_stands_elsewhere(self, world: World) -> None:
        resource = world.allocate("one")
        world.converge()
        world.change(resource, backend_id="")
        world.alter("a_one", parent="root")
        world.in_step()
        assert world.resource(resource).backend_id == ""
