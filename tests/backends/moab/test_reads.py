# SPDX-License-Identifier: MIT
"""What is read: who is a member, whose default account counts, what is paused; and at what cost."""

from __future__ import annotations

import logging

import pytest

from agent.core.actions import MoveDefaultAccount
from agent.core.associations import Association
from agent.core.errors import BackendUnavailable
from agent.core.model import Part
from backends.base import BULK_PARTS, Scope
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in

# MAM has no limits of single users.
KEPT = BULK_PARTS - {Part.USER_LIMITS}


def test_users_are_members_with_and_without_a_default_account(mam: StandIn) -> None:
    with mam.changed() as books:
        books.options["first_account_default"] = False
        books.create_account("a_x", organization="p_x")
        for word in ("ann", "bob", "-carl"):
            books.add_user("a_x", word)
        books.create_account("a_y")
        books.add_user("a_y", "ann")
        books.users |= {"ann": "a_x", "carl": "a_y"}
    seen = on_stand_in(mam).observe()
    assert seen.users_of("a_x") == {"ann", "bob", "carl"}
    assert seen.default_accounts == {"ann": "a_x"}, "carl's is an account that he is not in"
    assert seen.complete == KEPT


def test_default_accounts_are_left_alone_unless_the_site_lets_us(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
        books.add_user("a_x", "ann")
    backend = on_stand_in(mam, manage_default_accounts=False, default_account="users")
    seen = backend.observe()
    assert seen.default_accounts == {"ann": "users"} and Part.DEFAULT_ACCOUNTS in seen.complete
    assert backend.executed == {"read": 2}
    assert not any("mam-list-users" in line for line in mam.calls())


def test_default_accounts_are_not_whole_when_a_member_is_no_user(
    mam: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
        books.add_user("a_x", "ann")
        del books.users["ann"]
    with caplog.at_level(logging.WARNING):
        seen = on_stand_in(mam).observe()
    assert seen.complete == KEPT - {Part.DEFAULT_ACCOUNTS}
    assert "omits ann (1 in all)" in caplog.text


def test_a_default_account_moves_by_its_own_command(mam: StandIn) -> None:
    with mam.changed() as books:
        for name in ("a_x", "a_y"):
            books.create_account(name)
            books.add_user(name, "ann")
    backend = on_stand_in(mam)
    assert backend.observe().default_accounts == {"ann": "a_x"}
    (outcome,) = backend.apply([MoveDefaultAccount(account="a_y", user="ann", before="a_x")])
    assert outcome.done
    assert mam.writes() == ["mam-modify-user -u ann -a a_y"]
    assert backend.observe().default_accounts == {"ann": "a_y"}


def test_an_inactive_account_takes_no_jobs(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
        books.create_account("a_y")
        books.activate("a_y", active=False)
    seen = on_stand_in(mam).observe()
    assert {name: account.submit_limit for name, account in seen.accounts.items()} == {"a_x": None, "a_y": 0}


def test_parts_are_read_when_they_are_asked_for(mam: StandIn) -> None:
    with mam.changed() as books:
        books.create_account("a_x")
        books.create_fund("a_x")
    backend = on_stand_in(mam)
    given = backend.observe(Scope(frozenset({Part.TRES, Part.QOS})))
    assert (given.tres, given.qos, given.complete) == ({"deposit"}, frozenset(), {Part.TRES, Part.QOS})
    assert backend.executed == {}
    jobs = backend.observe(Scope(frozenset(), jobs_of=frozenset({"a_x"})))
    assert (jobs.active_jobs, jobs.complete) == ({"a_x": 0}, {Part.JOBS})
    assert backend.executed == {}
    used = backend.observe(Scope(frozenset(), usage_of=frozenset({"a_x", "a_none"})))
    assert (used.used, used.complete) == ({"a_x": {"deposit": 0}}, {Part.USAGE})
    assert backend.executed == {"read": 2}
    tree = backend.observe(Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})))
    assert tree.complete == {Part.ACCOUNTS, Part.ASSOCIATIONS}
    assert backend.executed == {"read": 4}


def test_an_empty_mam_is_believed_only_where_a_user_is_listed(mam: StandIn) -> None:
    backend = on_stand_in(mam, manage_default_accounts=False)
    assert backend.observe().accounts == {}
    assert backend.executed == {"read": 3}


def test_five_hundred_accounts_are_read_in_as_many_commands_as_one(mam: StandIn) -> None:
    with mam.changed() as books:
        for number in range(500):
            books.create_account(f"a_{number}", organization=f"p_{number // 2}")
            books.create_fund(f"a_{number}")
            books.deposit(str(books.next_fund - 1), number + 1)
            for user in range(4):
                books.add_user(f"a_{number}", f"u{user}")
    backend = on_stand_in(mam)
    seen = backend.observe()
    assert backend.executed == {"read": 3}
    assert len(seen.accounts) == 500 and len(seen.associations) == 2000
    assert Association("a_499", "u3") in seen.associations
    assert seen.accounts["a_499"].limits == {"deposit": 5}


def test_a_column_that_this_mam_lacks_is_named_at_the_start(mam: StandIn) -> None:
    rules = (
        {"needle": name, "code": 1, "stderr": f"Unknown attribute: {name}\n"} for name in ("Charge", "Users")
    )
    mam.faults(*rules)
    problems = on_stand_in(mam).check().problems
    assert [text.partition(" here: ")[0] for text in problems] == [
        "mam-list-accounts does not show the column Users",
        "mam-list-usagerecords does not show the column Charge",
    ]
    assert "Unknown attribute: Users" in problems[0]


@pytest.mark.parametrize("needle", ["mam-list", "mam-list-usagerecords"])
def test_a_list_of_which_no_column_is_printed_is_an_outage(mam: StandIn, needle: str) -> None:
    mam.faults({"needle": f"{needle}", "code": 1, "stderr": "Failed to connect\n"})
    with pytest.raises(BackendUnavailable):
        on_stand_in(mam).check()
