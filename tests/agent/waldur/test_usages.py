# SPDX-License-Identifier: MIT
"""Usage in Waldur, of every age: months, dates, shares of users in bulk and one by one, and who is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from agent.core.errors import WaldurError
from agent.core.periods import Month
from agent.waldur import members, usages
from agent.waldur.client import WaldurClient
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario
from tests.agent.waldur.clients import client_at, client_of
from tests.agent.waldur.conftest import StartStandIn, StartWaldur
from tests.agent.waldur.stand_in import html, says

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOVEMBER, OCTOBER = Month(2026, 11), Month(2026, 10)
IN_NOVEMBER, IN_OCTOBER = (datetime(2026, month, 1, 12, tzinfo=UTC) for month in (11, 10))
SCENARIO = Scenario(
    components=(
        ComponentSpec(type="cpu", name="CPU", measured_unit="h"),
        ComponentSpec(type="gpu", name="GPU", measured_unit="h", billing_type="usage"),
    ),
    allocations_per_project=1,
)
AGES = ("2024", "8.0", "8.1")


@pytest.fixture(params=AGES)
def waldur(request: pytest.FixtureRequest, start: StartWaldur) -> SimulatedWaldur:
    server = start(request.param, scenario=SCENARIO)
    server.store.clock.freeze(NOW)
    return server


@pytest.fixture
def modern(start: StartWaldur) -> SimulatedWaldur:
    server = start("8.0", scenario=SCENARIO)
    server.store.clock.freeze(NOW)
    return server


@pytest.fixture
def client(waldur: SimulatedWaldur) -> Iterator[WaldurClient]:
    made = client_of(waldur)
    yield made
    made.close()


def report(client: WaldurClient, waldur: SimulatedWaldur, *amounts: tuple[str, str], **more: Any) -> None:
    date = more.get("date", IN_NOVEMBER)
    usages.set_totals(client, waldur.seed.resource_uuids[more.get("number", 0)], amounts, date)


def is_old(waldur: SimulatedWaldur) -> bool:
    return not waldur.store.age.is_modern


def test_totals_of_a_month(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    report(client, waldur, ("cpu", "12.50"), ("gpu", "0.00"))
    report(client, waldur, ("cpu", "13.00"))
    report(client, waldur, ("cpu", "1.00"), number=1)
    first, second = waldur.seed.resource_uuids[:2]
    found = {(r.resource, r.component): r.amount for r in usages.of_month(client, NOVEMBER)}
    assert found == {
        (first, "cpu"): Decimal("13.00"),
        (first, "gpu"): Decimal(0),
        (second, "cpu"): Decimal(1),
    }
    assert usages.of_month(client, OCTOBER) == []


def test_a_server_of_2024_files_every_month_under_its_own(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    """As recorded: a `date` in October was answered with 201, and November held the figure."""
    report(client, waldur, ("cpu", "7.00"), date=IN_OCTOBER)
    month, other = (NOVEMBER, OCTOBER) if is_old(waldur) else (OCTOBER, NOVEMBER)
    assert [r.amount for r in usages.of_month(client, month)] == [Decimal("7.00")]
    assert usages.of_month(client, other) == []


def test_whether_past_months_can_be_reported_is_asked_once(
    waldur: SimulatedWaldur, client: WaldurClient
) -> None:
    waldur.requests.reset()
    assert [usages.takes_dates(client) for _ in range(3)] == [not is_old(waldur)] * 3
    assert waldur.requests.count() == 1


def test_a_token_that_may_not_look_at_it_belongs_to_a_server_that_has_it(modern: SimulatedWaldur) -> None:
    client = client_of(modern)
    refusal = '{"detail": "You do not have permission to perform this action."}'
    modern.inject(
        Fault(path="user-attribute-config", status=403, body=refusal, content_type="application/json")
    )
    assert usages.takes_dates(client)


def test_an_outage_says_nothing_of_a_server(modern: SimulatedWaldur) -> None:
    client = client_of(modern, attempts=1)
    modern.inject(Fault(path="user-attribute-config", status=503))
    with pytest.raises(WaldurError):
        usages.takes_dates(client)
    assert usages.takes_dates(client)


def test_shares_of_users(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    report(client, waldur, ("cpu", "9.00"))
    (record,) = usages.of_month(client, NOVEMBER)
    ann, bob = members.offering_users(client)[:2]
    links = {ann.username: ann.uuid}
    waldur.requests.reset()
    for amount in ("2.00", "3.00"):
        amounts = [(ann.username, amount), (bob.username, "1.00"), ("stranger", "0.50")]
        assert usages.set_users(client, record.uuid, amounts, links, IN_NOVEMBER) == {}
    found = {share.username: share.amount for share in usages.of_users(client, NOVEMBER)}
    assert found == {ann.username: Decimal(3), bob.username: Decimal(1), "stranger": Decimal("0.50")}
    assert {share.record for share in usages.of_users(client, NOVEMBER)} == {record.uuid}
    linked = {row.username: row.offering_user_uuid for row in waldur.store.user_usages}
    assert linked == {ann.username: ann.uuid, bob.username: None, "stranger": None}
    posts = [entry.path.rstrip("/").rpartition("/")[2] for entry in waldur.requests.entries("POST *")]
    assert posts == (
        ["set_user_usages"] + 6 * ["set_user_usage"] if is_old(waldur) else 2 * ["set_user_usages"]
    )


def test_shares_hang_on_the_month_of_their_record(modern: SimulatedWaldur) -> None:
    client = client_of(modern)
    report(client, modern, ("cpu", "9.00"), date=IN_OCTOBER)
    (record,) = usages.of_month(client, OCTOBER)
    for date in (IN_OCTOBER, None):
        usages.set_users(client, record.uuid, [("ann", "9.00")], {}, date)
    assert [share.record for share in usages.of_users(client, OCTOBER)] == [record.uuid]
    assert usages.of_users(client, NOVEMBER) == []


@pytest.mark.parametrize("age", ["2024", "8.0"])
def test_one_user_who_is_refused_blocks_no_other(start: StartWaldur, age: str) -> None:
    """All or nothing is Waldur's rule for the whole list: then each goes alone."""
    waldur = start(age, scenario=SCENARIO)
    waldur.store.clock.freeze(NOW)
    client = client_of(waldur)
    report(client, waldur, ("cpu", "9.00"))
    (record,) = usages.of_month(client, NOVEMBER)
    users = members.offering_users(client)[:2]
    links = {user.username: user.uuid for user in users}
    person = waldur.store.users[users[0].user_uuid].username
    waldur.site.add_user_limit(waldur.seed.resource_uuids[0], person, component_type="cpu", limit=1)
    amounts = [(user.username, "5.00") for user in users]
    refused = usages.set_users(client, record.uuid, amounts, links, IN_NOVEMBER)
    assert set(refused) == {users[0].username}
    assert "exceeds the user's limit" in str(refused[users[0].username])
    assert [share.username for share in usages.of_users(client, NOVEMBER)] == [users[1].username]


def test_who_is_refused_alone_is_named_too(modern: SimulatedWaldur) -> None:
    client = client_of(modern)
    report(client, modern, ("cpu", "9.00"))
    (record,) = usages.of_month(client, NOVEMBER)
    refused = usages.set_users(client, record.uuid, [("ann", "1.234")], {}, IN_NOVEMBER)
    assert "no more than 2 decimal places" in str(refused["ann"])


def test_one_of_many_who_is_refused_is_found_by_halves(modern: SimulatedWaldur) -> None:
    client = client_of(modern)
    report(client, modern, ("cpu", "9.00"))
    (record,) = usages.of_month(client, NOVEMBER)
    amounts = [(f"user{number}", "1.234" if number == 40 else "1.00") for number in range(64)]
    modern.requests.reset()
    assert set(usages.set_users(client, record.uuid, amounts, {}, IN_NOVEMBER)) == {"user40"}
    assert sum(modern.request_counts().values()) == 13
    assert len(usages.of_users(client, NOVEMBER)) == 63


@pytest.mark.parametrize(
    ("detail", "is_about_dates"),
    [
        ("date: You do not have permission to perform this action.", True),
        ("Only staff may give a date.", True),
        ("resource: Project end date has passed.", False),
        ("date: Datetime has wrong format.", False),
        ("date: The date is in the future.", False),
        ("resource: The resource has no plan.; date: Not allowed.", True),
    ],
)
def test_a_refused_date_is_distinguished_from_other_refusals(detail: str, is_about_dates: bool) -> None:
    error = WaldurError(detail, method="POST", path="", status=400, detail=detail)
    assert usages.refuses_date(error) is is_about_dates


@pytest.mark.parametrize(
    ("username", "date", "component", "is_closed", "refuses_date"),
    [
        ("agent", IN_OCTOBER, "gpu", True, False),
        ("agent", datetime(2030, 1, 1, tzinfo=UTC), "cpu", False, False),
        ("agent-offering-manager", IN_NOVEMBER, "cpu", False, True),
        ("agent-offering-manager", IN_OCTOBER, "gpu", False, True),
    ],
)
def test_why_waldur_refuses(
    modern: SimulatedWaldur,
    username: str,
    date: datetime,
    component: str,
    is_closed: bool,
    refuses_date: bool,
) -> None:
    client = client_of(modern, username=username)
    with pytest.raises(WaldurError) as caught:
        report(client, modern, (component, "1.00"), date=date)
    assert usages.is_backfill(caught.value) == is_closed
    assert usages.refuses_date(caught.value) == refuses_date
    assert usages.refuses_month(caught.value) == (is_closed or refuses_date)


@pytest.mark.parametrize(
    ("amount", "words"),
    [("1.234", "decimal places"), ("x", "valid number"), ("1" + "0" * 18, "digits")],
)
def test_a_refusal_of_what_was_reported_is_not_about_the_month(
    modern: SimulatedWaldur, amount: str, words: str
) -> None:
    with pytest.raises(WaldurError, match=words) as caught:
        report(client_of(modern), modern, ("cpu", amount))
    assert not usages.refuses_month(caught.value)


def test_a_token_of_the_offering_alone_reports_the_present_month_without_a_date(
    modern: SimulatedWaldur,
) -> None:
    client = client_of(modern, username="agent-offering-manager")
    report(client, modern, ("gpu", "1.00"), date=None)
    (record,) = usages.of_month(client, NOVEMBER)
    assert usages.set_users(client, record.uuid, [("ann", "1.00")], {}, None) == {}


@pytest.mark.parametrize(
    ("printed", "amount"),
    [
        ("12.50", Decimal("12.50")), (12.5, Decimal("12.5")), (12, Decimal(12)), ("1E+3", Decimal(1000)),
        ("-1.00", Decimal(-1)), (None, None), ("", None), ("many", None), ("NaN", None), ("Infinity", None),
        (True, None), ([], None),
    ],
)  # fmt: skip
def test_amounts_as_servers_print_them(printed: object, amount: Decimal | None) -> None:
    assert usages.amount(printed) == amount


def test_records_of_other_months_are_not_taken_for_ours(stand_in: StartStandIn) -> None:
    """From a server that does not know the filter. Uuids come with dashes and without."""
    rows = [
        {
            "uuid": f"{n}" * 32,
            "type": "cpu",
            "usage": "1.00",
            "resource_uuid": "a" * 32,
            "billing_period": day,
        }
        for n, day in ((1, "2026-11-01"), (2, "2026-10-01"))
    ]
    rows.append(
        {
            "uuid": "3" * 32,
            "type": "mem",
            "usage": None,
            "resource_uuid": "aaaaaaaa-aaaa-aaaa-aaaa-" + "a" * 12,
        }
    )
    server = stand_in(lambda _: says(rows))
    found = usages.of_month(client_at(server.url), NOVEMBER)
    assert [(r.uuid[0], r.resource, r.amount) for r in found] == [
        ("1", "a" * 32, Decimal(1)),
        ("3", "a" * 32, None),
    ]


def test_bulk_is_not_given_up_where_it_worked_before(stand_in: StartStandIn) -> None:
    """A gateway that mislays the address for a moment (404 with a page) is an outage of that request."""
    answers = iter([says(None, 201), html("Not Found", 404)])
    server = stand_in(lambda _: next(answers))
    client = client_at(server.url)
    amounts = [("ann", "1.00"), ("bob", "1.00")]
    assert usages.set_users(client, "1" * 32, amounts, {}, None) == {}
    with pytest.raises(WaldurError, match="404"):
        usages.set_users(client, "1" * 32, amounts, {}, None)
