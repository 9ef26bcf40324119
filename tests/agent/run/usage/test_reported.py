# SPDX-License-Identifier: MIT
"""What a report submits to Waldur of every age: totals and shares, only what changed, and nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.cli import status as status_text
from agent.cli import status_page
from agent.config.model import Mode
from agent.core.model import Resource, ResourceState
from agent.run import passes
from agent.run.diagnosis import picture
from agent.run.results import Result
from agent.run.site import connect
from agent.state import reported_accounts
from simulator.world.records import OfferingUserState
from simulator.world.seed import ComponentSpec
from tests.agent.run.usage.conftest import AGES, MODERN, WorldFactory
from tests.agent.run.usage.world import COMPONENTS, CPU, HOUR, LAST, MEM, THIS, World, scenario

GPU = ComponentSpec(type="gres/gpu", name="GPU", measured_unit="h", billing_type="usage")


@pytest.mark.parametrize("age", AGES)
def test_totals_and_shares_of_the_month(make_world: WorldFactory, age: str) -> None:
    world = make_world(age)
    world.ran("a_1", "ann", 2.5, mem=1024 * HOUR * 4)
    world.ran("a_1", "ann", 0.5)
    world.ran("a_1", "bob", 1)
    world.ran("a_2", "ann", 4)
    report = world.report()
    assert report.counted() == {"done": 4}, report.as_json()
    assert world.in_waldur() == {
        "a_1": {"cpu": "4.00", "mem": "4.00"},
        "a_2": {"cpu": "4.00", "mem": "0.00"},
        "a_3": {"cpu": "0.00", "mem": "0.00"},
        "a_4": {"cpu": "0.00", "mem": "0.00"},
    }
    assert world.shares("a_1") == {"ann": "3.00", "bob": "1.00"}
    assert world.shares("a_1", "mem") == {"ann": "4.00"}
    assert world.shares("a_2") == {"ann": "4.00"}
    assert world.shares("a_3") == {}
    world.quiet()


@pytest.mark.parametrize("age", AGES)
def test_only_what_changed_is_sent(make_world: WorldFactory, age: str) -> None:
    world = make_world(age)
    world.busy()
    world.report()
    world.ran("a_2", "newcomer", 1)
    world.waldur.requests.reset()
    report = world.report()
    assert report.counted() == {"done": 1}
    (result,) = report.resources
    assert result.account == "a_2"
    sent = [entry.body for entry in world.waldur.requests.entries("POST *")]
    total, share = sent
    listed = [item["type"] for item in total["usages"]]
    # Servers of 2024 list only what was reported last.
    assert listed == (["cpu", "mem"] if age == "2024" else ["cpu"])
    item = share["usages"][0] if age != "2024" else share
    assert (item["username"], item["usage"]) == ("newcomer", "1.00")
    assert world.shares("a_2") == {"u2": "2.00", "newcomer": "1.00"}
    world.quiet()


def test_what_a_pass_says(world: World) -> None:
    world.ran("a_1", "ann", 2)
    world.ran("a_1", "bob", 1)
    report = world.report()
    by_account = {result.account: result.message for result in report.resources}
    assert by_account["a_1"] == "2026-11: cpu 3.00, mem 0.00; cpu of 2 users"
    world.ran("a_1", "bob", 1)
    assert world.report().resources[0].message == "2026-11: cpu 3.00 -> 4.00; cpu of 1 user"
    last = world.report()
    assert (last.in_step, last.resources, last.outcomes) == (4, [], [])


@pytest.mark.parametrize("state", ["ok", "updating", "terminating", "erred"])
def test_resources_keep_their_state(make_world: WorldFactory, state: str) -> None:
    world = make_world()
    world.busy()
    uuid = world.resource("a_1")
    value = {s.name.lower(): s for s in ResourceState}[state]
    world.waldur.site.change("resources", uuid, state=value)
    report = world.report()
    assert world.waldur.resource(uuid).state.value == value.value
    assert ("a_1" in world.in_waldur()) == (state != "erred")
    result = next(r for r in report.resources if r.resource_uuid == uuid)
    assert result.result is (Result.WAITING if state == "erred" else Result.DONE)
    assert not report.failed
    writes = {line for line in world.waldur.request_counts() if line.startswith("POST")}
    assert all("component-usages" in line for line in writes), writes


def test_a_known_account_without_jobs_is_zero_and_an_unknown_one_is_not(world: World) -> None:
    world.busy()
    world.report()
    world.backend.jobs.clear()
    world.ran("a_1", "u1", 1)
    world.drop("a_3")
    world.policy(usage_decreases="allow")
    report = world.report()
    assert {account: figures["cpu"] for account, figures in world.in_waldur().items()} == {
        "a_1": "1.00",
        "a_2": "0.00",
        "a_3": "3.00",
        "a_4": "0.00",
    }
    assert world.shares("a_2") == {"u2": "0.00"}
    (waits,) = (r for r in report.resources if r.result is Result.WAITING)
    assert waits.message == "account a_3 is not on the cluster: nothing is known of its usage"


def test_an_account_that_was_deleted_has_used_what_it_used(world: World) -> None:
    world.busy()
    world.drop("a_3")
    world.report()
    assert world.in_waldur()["a_3"] == {"cpu": "3.00", "mem": "0.00"}
    assert world.shares("a_3") == {"u3": "3.00"}


@pytest.mark.parametrize("what", ["nothing", "an error", "half a month"])
def test_an_answer_that_is_empty_or_broken_touches_nothing(world: World, what: str) -> None:
    """Half a month raises in the backend, as every broken line does: docs/slurm.md."""
    world.busy()
    world.report()
    before = world.in_waldur()
    world.waldur.requests.reset()
    if what == "nothing":
        world.backend.jobs.clear()
    else:
        world.backend.outage = lambda call: call == ("usage" if what == "an error" else "observe")
    report = world.report()
    assert world.sent() == []
    assert world.in_waldur() == before
    if what == "nothing":
        assert report.notes == [
            "the cluster names no job in 2026-11: where that is a fault, it is not zero usage, so none is submitted"
        ]
        assert report.error is None
    else:
        assert report.error is not None and report.error.retryable


def test_a_jobless_cluster_is_reported_nowhere_and_no_failure(world: World) -> None:
    report = world.report()
    assert (world.in_waldur(), world.sent(), report.failed) == ({}, [], False)


@pytest.mark.parametrize("age", MODERN)
def test_the_month_before_is_reported_as_well(make_world: WorldFactory, age: str) -> None:
    """By a token that may (staff); late jobs change a closed month."""
    world = make_world(age, user="staff")
    world.busy()
    world.busy(LAST)
    world.report()
    assert {a: f["cpu"] for a, f in world.in_waldur(LAST).items()} == {
        f"a_{n}": f"{n}.00" for n in range(1, 5)
    }
    world.ran("a_4", "late", 1, month=LAST)
    world.waldur.requests.reset()
    report = world.report()
    assert [r.message for r in report.resources] == ["2026-10: cpu 4.00 -> 5.00; cpu of 1 user"]
    assert world.in_waldur(LAST)["a_4"]["cpu"] == "5.00"
    assert world.shares("a_4", month=LAST) == {"u4": "4.00", "late": "1.00"}
    assert world.in_waldur()["a_4"]["cpu"] == "4.00"
    world.quiet()


def test_a_past_month_gets_no_zeros(make_world: WorldFactory) -> None:
    """Nothing means the same there, and many resources were not there yet."""
    world = make_world(user="staff")
    world.ran("a_1", "ann", 1, month=LAST)
    world.ran("a_1", "ann", 1)
    world.report()
    assert world.in_waldur(LAST) == {"a_1": {"cpu": "1.00"}}
    assert set(world.in_waldur()) == set(world.accounts)


@pytest.mark.parametrize(("periods", "months"), [(1, 1), (2, 2), (12, 12)])
def test_as_many_months_as_are_wanted(make_world: WorldFactory, periods: int, months: int) -> None:
    world = make_world(user="staff", periods=periods)
    month = THIS
    for _ in range(13):
        world.ran("a_1", "ann", 1, month=month)
        month = month.previous
    world.report()
    assert len(world.backend.queries) == months
    assert world.backend.queries[0].month == THIS
    assert len({row.billing_period for row in world.waldur.store.usages}) == months


def test_a_month_is_asked_for_in_the_zone_and_by_the_source_that_are_configured(
    make_world: WorldFactory,
) -> None:
    world = make_world(zone="Asia/Tokyo", usage_source="allocated")
    world.ran("a_1", "ann", 1)
    world.report()
    assert {(query.zone, query.source) for query in world.backend.queries} == {("Asia/Tokyo", "allocated")}


def test_users_are_linked_to_their_offering_users(world: World) -> None:
    """Not those whom the provider restricted; who is unknown to Waldur has a share without a link."""
    rows = world.waldur.store.offering_users
    known, spelled, restricted, gone = list(rows)[:4]
    spelled.username = "Mixed.Case"
    restricted.is_restricted = True
    restricted.username = "Restricted"
    gone_name = gone.username
    world.waldur.people.remove_account(world.waldur.store.users[gone.user_uuid].username)
    names = [known.username, "mixed.case", "restricted", gone_name, "stranger"]
    for hours, name in enumerate(names, 1):
        world.ran("a_1", name, hours)
    report = world.report()
    assert not report.failed, report.as_json()
    assert world.shares("a_1") == {
        known.username: "1.00",
        "Mixed.Case": "2.00",
        "Restricted": "3.00",
        gone_name: "4.00",
        "stranger": "5.00",
    }
    assert world.linked(known.username) == known.uuid
    assert world.linked("Mixed.Case") == spelled.uuid
    assert [world.linked(name) for name in ("Restricted", gone_name, "stranger")] == [None, None, None]
    world.quiet()


@pytest.mark.parametrize("order", [0, 1])
def test_of_two_users_with_one_name_the_one_who_is_well_is_linked(world: World, order: int) -> None:
    """A person who left and came back as another person of Waldur's."""
    rows = list(world.waldur.store.offering_users)[:2]
    gone, back = rows if order else rows[::-1]
    for row, state in ((gone, OfferingUserState.DELETED), (back, OfferingUserState.OK)):
        row.username, row.state = "ann", state
    world.ran("a_1", "ann", 1)
    world.report()
    assert world.linked("ann") == back.uuid


def test_a_share_keeps_the_name_under_which_it_was_reported_first(world: World) -> None:
    (row, *_) = world.waldur.store.offering_users
    name = row.username
    row.username = ""
    world.ran("a_1", name, 1)
    world.report()
    assert world.shares("a_1") == {name: "1.00"}
    row.username = name.upper()
    world.ran("a_1", name, 1)
    world.report()
    assert world.shares("a_1") == {name: "2.00"}
    world.quiet()


def test_components_of_any_tres_are_reported_by_their_factors(make_world: WorldFactory) -> None:
    components = {
        "mem": COMPONENTS["mem"],
        "gres/gpu": {"measured_unit": "h", "accounting_type": "usage", "label": "GPU", "unit_factor": 60,
                     "unit_factor_reporting": 30},
        "node_hours": {"measured_unit": "h", "accounting_type": "usage", "label": "Nodes",
                       "target_components": {"cpu": {"factor": 120}}},
    }  # fmt: skip
    nodes = ComponentSpec(type="node_hours", name="Nodes", measured_unit="h", billing_type="usage")
    world = make_world(seeded=scenario(components=(MEM, GPU, nodes)), components=components)
    world.ran("a_1", "ann", 3, **{"gres/gpu": HOUR})
    world.report()
    assert world.in_waldur()["a_1"] == {"mem": "0.00", "gres/gpu": "2.00", "node_hours": "2.00"}
    assert world.shares("a_1", "node_hours") == {"ann": "2.00"}


def test_a_tres_that_two_components_name_is_billed_once(make_world: WorldFactory) -> None:
    """Of 12 core-hours a third belongs to the nodes that were bought, by the limits of the resource."""
    components = {
        **COMPONENTS,
        "cpu": {**COMPONENTS["cpu"], "accounting_type": "limit"},
        "nodes": {"measured_unit": "h", "accounting_type": "limit", "label": "Nodes",
                  "target_components": {"cpu": {"factor": 240}}},
    }  # fmt: skip
    nodes = ComponentSpec(type="nodes", name="Nodes", measured_unit="h")
    world = make_world(seeded=scenario(components=(CPU, MEM, nodes)), components=components)
    world.waldur.site.change("resources", world.resource("a_1"), limits={"cpu": 200, "nodes": 25})
    world.ran("a_1", "ann", 9)
    world.ran("a_1", "bob", 3)
    world.report()
    assert world.in_waldur()["a_1"] == {"cpu": "8.00", "mem": "0.00", "nodes": "1.00"}
    assert world.shares("a_1") == {"ann": "6.00", "bob": "2.00"}
    assert world.shares("a_1", "nodes") == {"ann": "1.00"}, "of 0.75 and 0.25, in whole units"
    world.quiet()


def test_an_offering_without_resources_costs_no_month(make_world: WorldFactory) -> None:
    world = make_world(seeded=scenario(allocations_per_project=0))
    world.ran("a_9", "ann", 1)
    report = world.report()
    assert (report.error, world.backend.queries, world.sent()) == (None, [], [])


def test_an_account_that_two_offerings_name_is_billed_by_neither(world: World) -> None:
    """Where they count the same of it; what counts something else is no second bill."""
    world.busy()
    mine, other = world.site.offering, replace(world.site.offering, uuid="0" * 31 + "1", name="Other")
    site = replace(world.site, counting_alike={other.uuid: other.name})
    once = [Resource("r", "r", "r", ResourceState.OK, backend_id="A_2")]
    reported_accounts.write(site.state_dir, site.backend.cluster, other.uuid, once)
    found = passes.report_usage(site, clock=lambda: world.now)
    (stuck,) = (r for r in found.resources if r.result is Result.STUCK)
    assert (stuck.account, "named by offering Other as well" in stuck.message) == ("a_2", True)
    assert set(world.in_waldur()) == {"a_1", "a_3", "a_4"}
    others = reported_accounts.of_others(site.state_dir, site.backend.cluster, {mine.uuid: "Mine"})
    assert set(others) == {"a_1", "a_2", "a_3", "a_4"}


@pytest.mark.parametrize(
    ("component", "cluster", "alike"),
    [("cpu", "", True), ("gres/gpu", "", False), ("cpu", "another", False), ("cpu", "here", True)],
)
def test_who_counts_the_same(world: World, component: str, cluster: str, alike: bool) -> None:
    mine = world.settings.offerings[0]
    if cluster:
        mine = replace(mine, backend_settings={**mine.backend_settings, "cluster_name": "Here"})
    counted = replace(mine.components["cpu"], name=component)
    other = replace(
        mine, uuid="0" * 31 + "1", name="Other", components={component: counted},
        backend_settings={**mine.backend_settings, "cluster_name": cluster},
    )  # fmt: skip
    site = connect(replace(world.settings, offerings=(mine, other)), mine, Mode.REPORT)
    assert dict(site.counting_alike) == ({other.uuid: "Other"} if alike else {})


def test_a_resource_without_an_account_is_named(world: World) -> None:
    world.busy()
    world.waldur.site.change("resources", world.resource("a_2"), backend_id="")
    found = world.report()
    (note,) = found.notes
    assert "has no backend_id: its usage is unknown" in note
    assert not found.failed


def test_for_whom_a_report_waits_and_why_is_said_where_people_look(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """`5 in step, 1 waiting` alone sends no operator to the resource that gets no figure."""
    world.busy()
    world.waldur.site.change("resources", world.resource("a_2"), state=ResourceState.ERRED)
    found = world.report()
    assert found.counted() == {"waiting": 1, "done": 3}
    why = "a_2: Waldur takes no usage of a resource that is Erred"
    logged = [r.getMessage() for r in caplog.records if why in r.getMessage()]
    assert len(logged) == 1
    caplog.clear()
    assert world.report().counted() == {"waiting": 1}
    assert not [r for r in caplog.records if why in r.getMessage()]
    shown = picture.of_site(world.settings, world.settings.offerings)
    assert why in "\n".join(status_text.lines(shown))
    assert why in status_page.render(shown, {})


def test_a_job_that_ends_between_any_two_steps_of_a_report_is_in_the_next(make_world: WorldFactory) -> None:
    """Whatever a report has read when a job ends in two accounts: the next one reports both."""
    step = 0
    while True:
        step += 1
        world = make_world()
        world.busy()
        calls = 0

        def end(_: str, world: World = world, step: int = step) -> bool:
            nonlocal calls
            calls += 1
            if calls == step:
                world.ran("a_1", "u1", 8)
                world.ran("a_2", "u2", 8)
            return False

        world.backend.outage = end
        assert world.report().error is None
        world.backend.outage = lambda _: False
        if calls < step:
            break
        assert not world.report().failed
        assert {a: f["cpu"] for a, f in world.in_waldur().items()} == {
            "a_1": "9.00", "a_2": "10.00", "a_3": "3.00", "a_4": "4.00"
        }  # fmt: skip
        assert world.shares("a_1") == {"u1": "9.00"}
    assert step > 3
