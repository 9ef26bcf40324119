# SPDX-License-Identifier: MIT
"""The difference to what the funds were given, and never the limit again: as numbers, and on the stand-in."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.actions import SetLimits
from agent.core.errors import DoneInPart, NotApplied
from backends.base import Scope
from backends.moab.deposits import Move, Moves, moves, printed
from backends.moab.ledger import Fund, total
from backends.testing.contract import new
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in

NOW = datetime(2026, 5, 4, tzinfo=UTC)


def fund(number: int, allocated: str, balance: str) -> Fund:
    return Fund(number, Decimal(allocated), Decimal(balance))


CASES = {
    "a new fund gets it all": ([fund(1, "0", "0")], 100, [(1, "100")], "0"),
    "nothing to do": ([fund(1, "100", "3")], 100, [], "0"),
    "raised": ([fund(1, "100", "3")], 250, [(1, "150")], "0"),
    "lowered by what is left": ([fund(1, "100", "30")], 80, [(1, "-20")], "0"),
    "lowered below what is spent": ([fund(1, "100", "30")], 50, [(1, "-30")], "20"),
    "lowered when nothing is left": ([fund(1, "100", "-5")], 50, [], "50"),
    "a part of a unit counts": ([fund(1, "99.75", "1")], 100, [(1, "0.25")], "0"),
    "two funds hold together": ([fund(1, "60", "60"), fund(2, "40", "40")], 100, [], "0"),
    "into the oldest": ([fund(1, "60", "60"), fund(2, "40", "40")], 110, [(1, "10")], "0"),
    "out of the newest first": (
        [fund(1, "60", "60"), fund(2, "40", "15")], 50, [(2, "-15"), (1, "-35")], "0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_only_the_difference_moves(what: str) -> None:
    funds, wanted, expected, missing = CASES[what]
    moved = tuple(Move(number, Decimal(amount)) for number, amount in expected)
    assert moves(funds, wanted) == Moves(moved, Decimal(missing))


amounts = st.decimals(min_value=0, max_value=10_000, places=2)


@given(st.lists(st.tuples(amounts, amounts), min_size=1, max_size=4), st.integers(0, 20_000))
def test_no_fund_goes_below_nothing_and_doing_it_again_moves_nothing(
    given_and_spent: list[tuple[Decimal, Decimal]], wanted: int
) -> None:
    funds = [Fund(n, given_, given_ - spent) for n, (given_, spent) in enumerate(given_and_spent)]
    found = moves(funds, wanted)
    after = {f.id: f for f in funds}
    for move in found.moves:
        before = after[move.fund]
        assert move.amount > 0 or before.balance + move.amount >= 0
        after[move.fund] = Fund(before.id, before.allocated + move.amount, before.balance + move.amount)
    changed = tuple(after.values())
    assert total(changed) == wanted + found.missing
    assert moves(changed, wanted) == Moves((), found.missing)
    assert found.missing == 0 or all(f.balance <= 0 for f in changed)


@pytest.mark.parametrize(
    ("amount", "text"),
    [("100", "100"), ("1E+6", "1000000"), ("0.50", "0.5"), ("-12.30", "12.3"), ("3.00", "3"), ("0", "0")],
)
def test_amounts_are_written_in_plain_digits(amount: str, text: str) -> None:
    assert printed(Decimal(amount)) == text


def test_a_limit_is_deposited_once_however_often_it_is_set(mam: StandIn) -> None:
    backend = on_stand_in(mam)
    actions = [new("a_demo", "root"), SetLimits(account="a_demo", after=(("deposit", 1000),))]
    for _ in range(3):
        assert all(outcome.done for outcome in backend.apply(actions))
    mam.charge("a_demo", "ann", "800.25", NOW)
    assert all(outcome.done for outcome in backend.apply(actions))
    assert [line for line in mam.writes() if "deposit" in line] == ["mam-deposit -a a_demo -z 1000 -f 17"]
    seen = backend.observe(Scope(usage_of=frozenset({"a_demo"})))
    assert (seen.accounts["a_demo"].limits, seen.used) == ({"deposit": 1000}, {"a_demo": {"deposit": 801}})


def test_what_is_spent_stays_and_is_reported(mam: StandIn) -> None:
    backend = on_stand_in(mam)
    backend.apply([new("a_demo", "root"), SetLimits(account="a_demo", after=(("deposit", 1000),))])
    mam.charge("a_demo", "ann", "800.25", NOW)
    lower = SetLimits(account="a_demo", before=(("deposit", 1000),), after=(("deposit", 500),))
    for _ in range(2):
        (outcome,) = backend.apply([lower])
        assert isinstance(outcome.error, DoneInPart)
        assert str(outcome.error) == (
            "the deposit of a_demo is lowered to 800.25 and no further: 300.25 of what should be taken out as well "
            "is spent already"
        )
    assert mam.books.list_funds()[0] == {
        "Id": "17", "Allocated": "800.25", "Balance": "0.00", "Constraints": "Account=a_demo",
    }  # fmt: skip
    assert [line for line in mam.writes() if "withdraw" in line] == ["mam-withdraw -z 199.75 -f 17"]


def test_the_fund_is_the_accounts_own_and_not_the_first_that_can_be_seen(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_fund()
        books.deposit("17", 500_00)
        books.create_account("a_demo")
        books.create_fund("a_demo", User="ann")
        books.deposit("18", 7_00)
    backend = on_stand_in(mam)
    assert dict(backend.observe().accounts["a_demo"].limits) == {}
    (outcome,) = backend.apply([SetLimits(account="a_demo", after=(("deposit", 100),))])
    assert outcome.done
    assert mam.writes() == ["mam-create-fund -a a_demo", "mam-deposit -a a_demo -z 100 -f 19"]
    held = {row["Id"]: row["Balance"] for row in mam.books.list_funds()}
    assert held == {"17": "500.00", "18": "7.00", "19": "100.00"}


def test_a_second_fund_counts_and_is_emptied_first(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_demo")
        for number, amount in (("17", 60_00), ("18", 40_00)):
            books.create_fund("a_demo")
            books.deposit(number, amount)
    backend = on_stand_in(mam)
    assert dict(backend.observe().accounts["a_demo"].limits) == {"deposit": 100}
    for wanted, held in ((130, {"17": 90_00, "18": 40_00}), (70, {"17": 70_00, "18": 0})):
        (outcome,) = backend.apply([SetLimits(account="a_demo", after=(("deposit", wanted),))])
        assert outcome.done
        assert {number: fund["balance"] for number, fund in mam.books.funds.items()} == held


def test_what_was_to_be_raised_is_not_lowered_because_another_user_gave_more(mam: StandIn) -> None:
    backend = on_stand_in(mam)
    backend.apply([new("a_demo", "root")])
    with mam.changed() as books:
        books.deposit("17", 900_00)
    raised = SetLimits(account="a_demo", before=(("deposit", 100),), after=(("deposit", 500),))
    (outcome,) = backend.apply([raised])
    assert isinstance(outcome.error, NotApplied)
    assert "were given 900 by now, more than the 500" in str(outcome.error)
    assert mam.books.funds["17"]["balance"] == 900_00


def test_a_limit_of_nothing_needs_a_fund_and_no_deposit(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_demo")
    backend = on_stand_in(mam)
    (outcome,) = backend.apply([SetLimits(account="a_demo", after=(("deposit", 0),))])
    assert outcome.done
    assert mam.writes() == ["mam-create-fund -a a_demo"]
    assert dict(backend.observe().accounts["a_demo"].limits) == {"deposit": 0}
