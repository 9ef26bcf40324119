# SPDX-License-Identifier: MIT
"""Reports: what was charged by account and user, this month and past ones, and what that costs."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from agent.core.periods import Month
from simulator.server.waldur import SimulatedWaldur
from tests.backends.moab.site.world import World, scenario
from tests.scale import FULL

ALLOCATIONS = 500 if FULL else 100
NOW = datetime.now(UTC)
THIS, LAST = Month.of(NOW), Month.of(NOW).previous


def in_month(month: Month) -> datetime:
    return month.start(UTC)


def test_charges_of_this_month_and_the_last_are_reported_by_account_and_user(world: World) -> None:
    resource, other = world.stand("a_one", "a_two")
    user = min(world.members("a_one"))
    for amount, month in (("12.75", THIS), ("0.125", THIS), ("7", LAST), ("100", LAST.previous)):
        world.mam.add_records([(int(in_month(month).timestamp()), "a_one", user, amount)])
    found = world.report()
    assert not found.failed, found.as_json()
    assert world.usage(resource)[str(THIS.first_day)] == Decimal("12.88")
    assert world.usage(resource)[str(LAST.first_day)] == Decimal("7.00")
    assert world.usage(other)[str(THIS.first_day)] == 0
    shares = {share.username: str(share.usage) for share in world.waldur.store.user_usages}
    assert set(shares) == {user}
    assert found.effort.commands == Counter(read=4), "accounts, funds, and each month once"


def test_of_a_broken_answer_nothing_is_reported(world: World) -> None:
    (resource,) = world.stand("a_one")
    world.mam.add_records([(int(NOW.timestamp()), "a_one", "ann", "5")])
    world.report()
    before = world.usage(resource)
    world.mam.faults({"needle": "usagerecords", "code": 0, "stdout": "a_one|ann|9\na_one|an"})
    world.mam.add_records([(int(NOW.timestamp()), "a_one", "ann", "5")])
    world.report(fails=True)
    assert world.usage(resource) == before


def test_a_month_of_many_accounts_is_one_command(tmp_path: Path) -> None:
    many = scenario(
        customers=2, projects_per_customer=ALLOCATIONS // 4, allocations_per_project=2, members_per_project=1
    )
    with SimulatedWaldur(scenario=many) as waldur:
        world = World(waldur, tmp_path)
        world.stand(*(f"a_{number}" for number in range(ALLOCATIONS)))
        moment = int(in_month(THIS).timestamp())
        world.mam.add_records(
            (moment, f"a_{number}", f"u{job}", "0.25") for number in range(ALLOCATIONS) for job in range(20)
        )
        found = world.report()
        reported = world.usage(waldur.seed.resource_uuids[0])
    assert found.effort.commands == Counter(read=4)
    called = Counter(line.split()[0] for line in world.mam.calls())
    assert called == {"mam-list-accounts": 1, "mam-list-funds": 1, "mam-list-usagerecords": 2}
    assert reported[str(THIS.first_day)] == Decimal("5.00")
