# SPDX-License-Identifier: MIT
"""What Waldur refuses stops one resource or one user; an outage stops the report, and loses nothing."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest

from agent.core.errors import BackendUnavailable, PassUnfinished, WaldurError
from agent.http.connections import POOL_SIZE
from agent.run.results import Result
from agent.run.usage import mode as usage
from agent.run.usage.submission import AT_ONCE, FAILURES_IN_A_ROW, waldur_breaker
from simulator.server.faults import Fault, FaultKind, throttled
from tests.agent.run.usage.conftest import AGES, MODERN, WorldFactory
from tests.agent.run.usage.world import COMPONENTS, CPU, HOUR, LAST, MEM, World, scenario

TOTALS = "component-usages/set_usage"
MANY = scenario(projects_per_customer=15, allocations_per_project=4, members_per_project=0)


def cpu(world: World) -> dict[str, str]:
    return {account: of["cpu"] for account, of in world.in_waldur().items()}


def all_of(world: World) -> dict[str, str]:
    return {account: f"{n}.00" for n, account in enumerate(world.accounts, 1)}


def refusing(world: World, account: str, *, status: int = 400) -> None:
    """Waldur says no to this resource only: it has no plan any more (8.x: 400; 2024: 500)."""
    world.waldur.site.change("resources", world.resource(account), plan_uuid=None)
    assert status == (400 if world.waldur.store.age.is_modern else 500)


@pytest.mark.parametrize("age", MODERN)
def test_one_of_many_is_refused_and_the_others_are_reported(make_world: WorldFactory, age: str) -> None:
    world = make_world(age, seeded=MANY)
    world.busy()
    refusing(world, "a_7")
    report = world.report()
    assert report.counted() == {"done": 59, "stuck": 1}
    (stuck,) = (r for r in report.resources if r.result is Result.STUCK)
    assert (stuck.account, "The resource has no plan" in stuck.message) == ("a_7", True)
    expected = all_of(world)
    expected.pop("a_7")
    assert cpu(world) == expected
    assert world.shares("a_8") == {"u8": "8.00"}
    world.waldur.requests.reset()
    again = world.report()
    assert (again.in_step, again.counted()) == (59, {"stuck": 1})
    assert len(world.sent()) == 1


def test_a_failure_in_the_month_before_keeps_no_share_of_this_month_back(make_world: WorldFactory) -> None:
    world = make_world(user="staff")
    world.busy()
    world.busy(LAST)
    world.waldur.faults.add(Fault(path=TOTALS, method="POST", status=400, times=1))
    report = world.report()
    assert report.counted()["stuck"] == 1
    assert "a_1" not in world.in_waldur(LAST)
    assert world.shares("a_1") == {"u1": "1.00"}


def test_one_that_waldur_trips_over_does_not_keep_the_others_away(make_world: WorldFactory) -> None:
    """500 for a resource without a plan: a server of 2024. It would come again in every pass."""
    world = make_world("2024", seeded=MANY)
    world.busy()
    for account in ("a_1", "a_30"):
        refusing(world, account, status=500)
    report = world.report()
    assert report.counted() == {"done": 58, "retry": 2}
    assert report.retryable_error is not None
    assert set(all_of(world)) - set(cpu(world)) == {"a_1", "a_30"}


@pytest.mark.parametrize("kind", ["no answer", "503", "not JSON"])
def test_what_failed_goes_last_the_next_time(make_world: WorldFactory, kind: str) -> None:
    """So that one which ends every pass lets the others be reported all the same."""
    world = make_world(seeded=MANY)
    world.busy()
    world.site = world.connected(attempts=1)
    fault = {
        "no answer": Fault(kind=FaultKind.RESET, path=TOTALS),
        "503": Fault(path=TOTALS, status=503),
        "not JSON": Fault(path=TOTALS, status=201, body="<html>", content_type="text/html"),
    }[kind]
    world.waldur.inject(fault)
    first = world.report()
    failed = {r.account for r in first.resources if r.result is Result.RETRY}
    if kind == "no answer":
        assert failed == set(world.accounts), "the first one ended the pass"
        assert cpu(world) == {}
    else:
        assert failed == {"a_1"}
    world.waldur.faults.clear()
    world.waldur.requests.reset()
    world.report()
    order = [e.body["resource"] for e in world.waldur.requests.entries(f"POST *{TOTALS}*")]
    assert world.resource("a_1") in order[-POOL_SIZE:]
    assert cpu(world) == all_of(world)


def test_an_outage_ends_the_pass_and_the_next_one_goes_on(make_world: WorldFactory) -> None:
    world = make_world(seeded=MANY)
    world.busy()
    world.site = world.connected(attempts=1)
    world.waldur.inject(Fault(path="component-usages", method="POST", status=503, times=None, skip=20))
    report = world.report()
    tried = [o for o in report.outcomes if o.error]
    assert FAILURES_IN_A_ROW <= len(tried) < 3 * FAILURES_IN_A_ROW  # eight are under way at once
    assert report.counted() == {"retry": 60}, "shares are missing of those that have a total"
    assert report.retryable_error is not None
    assert len(cpu(world)) == 20
    assert sum(outcome.done for outcome in report.outcomes) == 20, "what was not even sent is not reported"
    world.waldur.faults.clear()
    again = world.report()
    assert not again.failed
    assert cpu(world) == all_of(world)
    assert all(world.shares(account) for account in world.accounts)
    world.quiet()


def test_an_outage_while_shares_are_reported(world: World) -> None:
    world.busy()
    world.site = world.connected(attempts=1)
    world.waldur.inject(Fault(kind=FaultKind.RESET, path="set_user_usages", times=None))
    report = world.report()
    assert report.counted() == {"retry": 4}
    assert cpu(world) == all_of(world)
    world.waldur.faults.clear()
    world.waldur.requests.reset()
    assert world.report().counted() == {"done": 4}
    assert Counter(world.sent()) == {("POST", "marketplace-component-usages/{uuid}/set_user_usages/"): 4}


def test_an_answer_that_was_lost_changes_nothing(world: World) -> None:
    """Waldur took it, and the connection broke: the same figure is set once more."""
    world.busy()
    world.waldur.inject(
        Fault(kind=FaultKind.RESET, path="component-usages", method="POST", times=3, carried_out=True)
    )
    assert not world.report().failed
    assert cpu(world) == all_of(world)
    world.quiet()


@pytest.mark.parametrize(
    "fault",
    [
        throttled(retry_after_s=0, method="POST", times=3),
        Fault(method="POST", status=502, times=3),
        Fault(method="POST", status=500, times=2),
        Fault(method="GET", status=503, times=3),
        Fault(kind=FaultKind.TRUNCATE, method="GET", times=1),
    ],
    ids=["429", "502", "500", "503 of a list", "a list that is cut off"],
)
def test_a_busy_waldur_is_waited_out(world: World, fault: Fault) -> None:
    world.busy()
    world.waldur.inject(fault)
    report = world.report()
    assert (report.error, report.counted()) == (None, {"done": 4})
    assert cpu(world) == all_of(world)


@pytest.mark.parametrize(
    "path",
    [
        "provider-offerings",
        "provider-resources",
        "offering-users",
        "component-usages",
        "component-user-usages",
    ],
)
def test_a_list_that_cannot_be_read_reports_nothing(world: World, path: str) -> None:
    world.busy()
    world.waldur.inject(Fault(method="GET", path=path, status=503, times=None))
    report = world.report()
    assert report.error is not None and report.error.retryable
    assert (world.sent(), report.outcomes) == ([], [])


def test_a_refused_token_ends_the_pass_at_once(make_world: WorldFactory) -> None:
    world = make_world(seeded=MANY)
    world.busy()
    world.waldur.people.deny("agent", "RESOURCE.SET_USAGE")
    world.waldur.requests.reset()
    report = world.report()
    assert report.failed and report.error is not None
    assert "The token's user lacks the right RESOURCE.SET_USAGE" in str(report.error)
    assert len(world.sent()) == 1
    assert report.retryable_error is None


def test_a_cluster_that_is_away_is_waited_for(world: World) -> None:
    world.busy()
    world.backend.outage = lambda call: call == "usage"
    report = world.report()
    assert isinstance(report.error, BackendUnavailable)
    assert report.retryable_error is report.error
    assert world.sent() == []


@pytest.mark.parametrize("age", AGES)
def test_one_user_who_is_refused_keeps_no_other_user_from_a_share(make_world: WorldFactory, age: str) -> None:
    world = make_world(age)
    ann, bob = list(world.waldur.store.offering_users)[:2]
    for hours, user in ((5, ann), (2, bob)):
        world.ran("a_1", user.username, hours)
    person = world.waldur.store.users[ann.user_uuid].username
    world.waldur.site.add_user_limit(world.resource("a_1"), person, component_type="cpu", limit=4)
    world.ran("a_2", "u2", 1)
    report = world.report()
    (stuck,) = (r for r in report.resources if r.result is Result.STUCK)
    assert stuck.account == "a_1"
    assert stuck.message.startswith(f"cpu of {ann.username}: ")
    assert "exceeds the user's limit" in stuck.message
    assert world.in_waldur()["a_1"]["cpu"] == "7.00", "a share never keeps the total away"
    assert world.shares("a_1") == {bob.username: "2.00"}
    assert world.shares("a_2") == {"u2": "1.00"}


def test_a_component_that_waldur_does_not_know_is_said(make_world: WorldFactory) -> None:
    world = make_world(seeded=scenario(components=(CPU,)))
    world.busy()
    for _ in range(2):
        report = world.report()
        assert report.notes == ["Waldur's offering has no component mem: run load-components"]
        assert not report.failed
    assert world.in_waldur()["a_2"] == {"cpu": "2.00"}


def test_no_component_of_ours_in_waldur(make_world: WorldFactory) -> None:
    world = make_world(seeded=scenario(components=(type(CPU)(type="tape", name="Tape", measured_unit="TB"),)))
    world.busy()
    report = world.report()
    assert [note.partition(":")[0] for note in report.notes] == [
        "Waldur's offering has no component cpu",
        "Waldur's offering has no component mem",
    ]
    assert (world.sent(), world.backend.queries) == ([], [])


def test_components_that_are_bought_once_are_not_reported(make_world: WorldFactory) -> None:
    fixed = type(MEM)(type="mem", name="Memory", measured_unit="GB", billing_type="one")
    world = make_world(seeded=scenario(components=(CPU, fixed)))
    world.ran("a_1", "ann", 1, mem=1024 * HOUR)
    report = world.report()
    assert (report.notes, report.failed) == ([], False)
    assert world.in_waldur()["a_1"] == {"cpu": "1.00"}


def test_a_tres_that_the_cluster_does_not_track(make_world: WorldFactory) -> None:
    disk = type(CPU)(type="gres/disk", name="Disk", measured_unit="TB", billing_type="usage")
    components = {
        **COMPONENTS,
        "gres/disk": {"measured_unit": "TB", "accounting_type": "usage", "label": "Disk"},
    }
    world = make_world(seeded=scenario(components=(CPU, MEM, disk)), components=components, user="staff")
    world.busy()
    world.busy(LAST)
    report = world.report()
    assert report.notes == [
        "component gres/disk: the cluster does not count gres/disk, so its usage is unknown"
    ]
    assert not report.failed
    assert world.in_waldur()["a_2"] == {"cpu": "2.00", "mem": "0.00"}
    # Accounts, a month, a month, and TRES once.
    assert report.effort.commands == {"read": 4}


def test_an_account_that_two_resources_name_is_reported_for_neither(world: World) -> None:
    world.busy()
    world.waldur.site.change("resources", world.resource("a_2"), backend_id="A_1")
    report = world.report()
    stuck = [r for r in report.resources if r.result is Result.STUCK]
    assert len(stuck) == 2
    assert "account a_1 is named by several resources" in stuck[0].message
    assert set(cpu(world)) == {"a_3", "a_4"}
    assert report.failed


def test_more_than_waldur_counts_stops_its_resource_only(world: World) -> None:
    world.busy()
    world.ran("a_1", "ann", 1e19)
    report = world.report()
    (stuck,) = (r for r in report.resources if r.result is Result.STUCK)
    assert stuck.message == "usage of cpu is more than Waldur counts: check unit_factor"
    assert set(cpu(world)) == {"a_2", "a_3", "a_4"}
    assert report.failed


def test_what_is_wrong_is_logged_once(make_world: WorldFactory, caplog: pytest.LogCaptureFixture) -> None:
    """In one line for all that have the same trouble, and not in every pass."""
    world = make_world(seeded=MANY)
    world.busy()
    for number in range(1, 9):
        refusing(world, f"a_{number}")
    for _ in range(3):
        assert world.report().failed
    logged = [r.getMessage() for r in caplog.records if r.getMessage().startswith("report of offering")]
    (line,) = logged
    assert "Test SLURM: a_1, a_2, a_3, a_4, a_5 and 3 more: " in line


def test_who_is_more_urgent_goes_first_and_the_report_gets_on(make_world: WorldFactory) -> None:
    """Interrupted for ever, it still ends."""
    world = make_world(seeded=MANY, user="staff")
    world.busy()
    passes = []
    while not passes or passes[-1].failed:
        passes.append(world.report(must_yield=lambda: True))
        assert len(passes) < 6
    assert isinstance(passes[0].retryable_error, PassUnfinished)
    assert AT_ONCE <= len(passes[0].outcomes) <= 2 * AT_ONCE
    assert cpu(world) == all_of(world)
    assert all(world.shares(account) for account in world.accounts)


def test_the_time_that_is_up_leaves_the_rest_to_the_next_pass(
    make_world: WorldFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What took long to read has a while to be reported; here it has none."""
    world = make_world(seeded=MANY)
    world.busy()
    monkeypatch.setattr(usage, "SUBMITTING_S", 600.0)
    assert not world.report(seconds=0).failed
    world.ran("a_1", "u1", 1)
    for account in world.accounts:
        world.ran(account, "new", 1)
    monkeypatch.setattr(usage, "SUBMITTING_S", 0.0)
    found = world.report(seconds=0)
    assert isinstance(found.retryable_error, PassUnfinished)
    assert found.counted()["retry"] > 0
    assert not world.report().failed
    assert all(world.shares(account)["new"] == "1.00" for account in world.accounts)


def test_a_few_resources_are_reported_whatever_waits(world: World) -> None:
    world.busy()
    assert world.report(must_yield=lambda: True).counted() == {"done": 4}


def failure(status: int | None) -> WaldurError:
    return WaldurError("no", method="POST", path="", status=status)


@pytest.mark.parametrize(
    ("answers", "is_away"),
    [
        ([None], True),
        ([500], False),
        ([401], True),
        ([403], True),
        ([400] * 50, False),
        ([500] * (FAILURES_IN_A_ROW - 1), False),
        ([429, 500, 502, 503, 504, 503, 503, 503], True),
        ([*[500] * (FAILURES_IN_A_ROW - 1), 200, *[500] * (FAILURES_IN_A_ROW - 1)], False),
        ([*[500] * (FAILURES_IN_A_ROW - 1), 400, *[500] * (FAILURES_IN_A_ROW - 1)], False),
    ],
)
def test_what_is_an_outage(answers: list[int | None], is_away: bool) -> None:
    breaker = waldur_breaker()
    for status in answers:
        breaker.record(None if status == 200 else failure(status))
    assert (breaker.error is not None) == is_away


def test_an_erred_resource_that_is_well_again_is_reported(world: World) -> None:
    world.busy()
    uuid = world.resource("a_1")
    state = world.waldur.resource(uuid).state
    world.waldur.site.change("resources", uuid, state=type(state)("Erred"))
    world.report()
    assert "a_1" not in world.in_waldur()
    world.waldur.site.change("resources", uuid, state=state)
    world.now = datetime(2026, 11, 21, tzinfo=UTC)
    world.report()
    assert cpu(world) == all_of(world)
