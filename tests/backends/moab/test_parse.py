# SPDX-License-Identifier: MIT
"""MAM's lists as they are printed, and every way in which an answer is none."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from agent.core.errors import ParseError
from backends.moab import parse
from backends.moab.ledger import Fund, Ledger, MamAccount

ACCOUNTS = "a_demo|True|ann,-bob,^+eve|p_demo\np_demo|True||p_demo\nold|False|ANY|Physics|Dep. 2\n"
FUNDS = (
    "1|0.00|0.00|\n"
    "17|1000.00|250.00|Account=a_demo\n"
    "9|20|-3.5|Account=a_demo\n"
    "18|5.00|5.00|Account=a_demo,User=ann\n"
    "19|5.00|5.00|User=ann\n"
    "20|5.00|5.00|Account=!a_demo\n"
    "21|5.00|5.00|Account=a b\n"
)


def test_accounts_come_with_their_members_whatever_these_may_do() -> None:
    assert parse.accounts(ACCOUNTS) == {
        "a_demo": MamAccount("a_demo", "p_demo", True, {"ann": "ann", "bob": "bob", "eve": "eve"}),
        "p_demo": MamAccount("p_demo", "p_demo", True, {}),
        "old": MamAccount("old", "Physics|Dep. 2", False, {}),
    }


def test_the_funds_of_an_account_are_those_for_it_alone() -> None:
    own = parse.funds(FUNDS)
    assert own["a_demo"] == (
        Fund(9, Decimal(20), Decimal("-3.5"), "Account=a_demo"),
        Fund(17, Decimal(1000), Decimal(250), "Account=a_demo"),
    )
    assert set(own) == {"a_demo", "!a_demo", "a b"}
    ledger = Ledger(parse.accounts(ACCOUNTS), own)
    assert ledger.limits("a_demo") == {"deposit": 1020}
    assert ledger.used("a_demo") == {"deposit": 774}, "773.5, and the begun one"
    assert (ledger.limits("p_demo"), ledger.used("p_demo")) == ({"deposit": 0}, {"deposit": 0})
    assert ledger.remarks("a_demo") == ()
    assert ledger.remarks("p_demo")[0].startswith("it has no fund of its own in MAM")
    unknown = Ledger(parse.accounts(ACCOUNTS), {})
    assert (unknown.limits("p_demo"), unknown.used("p_demo"), unknown.remarks("p_demo")) == ({}, {}, ())


@pytest.mark.parametrize(
    "row", ["9|||", "9|unlimited|unlimited|", "9|||User=ann", "9|-||Account=a_demo,Class=x"]
)
def test_what_is_in_funds_that_none_of_our_accounts_owns_is_not_looked_at(row: str) -> None:
    own = parse.funds(f"{row}\n17|5|5|Account=a_demo\n")
    assert {name: [fund.id for fund in funds] for name, funds in own.items()} == {"a_demo": [17]}


def test_funds_that_an_account_has_not_alone_are_named() -> None:
    others = parse.uncounted(FUNDS + "22|1|1|Account=A_Demo, Account=b\n")
    assert others == {
        "a_demo": ("18 (Account=a_demo,User=ann)", "22 (Account=A_Demo, Account=b)"),
        "b": ("22 (Account=A_Demo, Account=b)",),
    }
    ledger = Ledger(parse.accounts(ACCOUNTS), parse.funds(FUNDS), others)
    assert "not counted: 18 (Account=a_demo,User=ann), 22" in ledger.remarks("a_demo")[0]


def test_users_are_seen_with_and_without_a_default_account() -> None:
    assert parse.default_accounts("Ann|a_Demo\nbob|\n") == {"ann": "a_demo", "bob": ""}


def test_charges_are_read_as_they_are() -> None:
    lines = ["a_demo|ann|12.75", "A_Demo|Bob|-0.50", "|x|3", "a_demo||1"]
    assert list(parse.usage(lines)) == [
        ("a_demo", "ann", Decimal("12.75")),
        ("a_demo", "bob", Decimal("-0.50")),
        ("", "x", Decimal(3)),
        ("a_demo", "", Decimal(1)),
    ]


def test_of_two_accounts_that_differ_in_case_the_one_in_lower_case_is_meant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for text in ("A_X|True|ann|\na_x|True|bob|\n", "a_x|True|bob|\nA_X|True|ann|\n"):
        assert parse.accounts(text) == {"a_x": MamAccount("a_x", "", True, {"bob": "bob"})}
    assert "A_X and a_x" in caplog.text


BROKEN: list[tuple[Callable[[str], Any], str, str]] = [
    (parse.accounts, "a_demo|True|ann|p_de", "the last line is cut"),
    (parse.accounts, "a_demo|True|ann\n", "4 columns were asked for, 3 came"),
    (parse.accounts, "Name|Active|Users|Organization\n", "it should begin like a_demo|True|"),
    (parse.accounts, "|True||\n", "it should begin like a_demo|True|"),
    (parse.funds, "x|1|1|\n", "the id of a fund is a whole number"),
    (parse.funds, "17|many|1|Account=a\n", "'many' is no amount"),
    (parse.funds, "17|1|NaN|Account=a\n", "'NaN' is no amount"),
    (parse.funds, "17|1|Infinity|Account=a\n", "'Infinity' is no amount"),
    (parse.funds, "17|1e5|1|Account=a\n", "'1e5' is no amount"),
    (parse.funds, "17|1_0|1|Account=a\n", "'1_0' is no amount"),
    (parse.funds, f"17|{'9' * 5000}|1|Account=a\n", "is no amount"),
    (parse.funds, f"{'9' * 5000}|1|1|\n", "the id of a fund is a whole number"),
    (parse.funds, "17|1\n", "4 columns were asked for, 2 came"),
    (parse.default_accounts, "", "no user is listed"),
    (parse.default_accounts, "ann\n", "2 columns were asked for, 1 came"),
    (lambda text: list(parse.usage([text])), "a|ann", "3 columns were asked for, 2 came"),
    (lambda text: list(parse.usage([text])), "a|ann|x|1", "3 columns were asked for, 4 came"),
    (lambda text: list(parse.usage([text])), "a|ann|", "'' is no amount"),
]


@pytest.mark.parametrize(("read", "text", "problem"), BROKEN)
def test_an_answer_that_is_broken_anywhere_is_none(
    read: Callable[[str], Any], text: str, problem: str
) -> None:
    with pytest.raises(ParseError) as error:
        read(text)
    assert problem in str(error.value)
    assert error.value.retryable


ORGANIZATIONS = {
    "a|True||p\np|True||p\n": {"a": "p", "p": ""},
    "a|True||P_Proj\n": {"a": "p_proj"},
    "a|True||b\nb|True||a\nc|True||a\n": {"a": "", "b": "", "c": "a"},
    "a|True||b\nb|True||c\nc|True||a\nd|True||\n": {"a": "", "b": "", "c": "", "d": ""},
}


@pytest.mark.parametrize("text", ORGANIZATIONS)
def test_nothing_stands_below_itself(text: str) -> None:
    ledger = Ledger(parse.accounts(text))
    assert {name: ledger.parent(name) for name in ledger.accounts} == ORGANIZATIONS[text]
