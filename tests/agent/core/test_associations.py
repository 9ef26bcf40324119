# SPDX-License-Identifier: MIT
"""The compact set of associations is a set: it says and does what a frozenset of the same rows does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.associations import Association, Associations
from agent.core.model import Account, Snapshot

NAMES = st.sampled_from(["a", "b", "c", "ab", "ü"])
ROWS = st.frozensets(st.builds(Association, NAMES, NAMES, st.sampled_from(["", "gpu", "main"])))


@given(ROWS, ROWS, NAMES, NAMES)
def test_it_is_a_set(
    rows: frozenset[Association], more: frozenset[Association], account: str, user: str
) -> None:
    found, others = Associations(rows), Associations(more)
    assert found == rows == frozenset(found)
    assert len(found) == len(rows)
    assert all((row in found) == (row in rows) for row in rows | more)
    assert (found == others) == (rows == more)
    assert found | more == more | found == found | others == rows | more
    assert found - more == rows - more
    assert found & others == rows & more
    assert found == rows, "it is not changed by any of that"
    assert found.users_of(account) == {row.user for row in rows if row.account == account}
    assert found.rows_of(account, user) == {r for r in rows if (r.account, r.user) == (account, user)}
    members = list(found.members())
    assert set(members) == {(row.account, row.user) for row in rows}
    assert len(set(members)) == len(members), "on several partitions a user counts once"


@given(ROWS, ROWS, st.frozensets(NAMES))
def test_those_of_some_accounts_are_exchanged(
    before: frozenset[Association], now: frozenset[Association], accounts: frozenset[str]
) -> None:
    found = Associations(before).with_accounts(Associations(now), accounts)
    kept = {row for row in before if row.account not in accounts}
    assert found == kept | {row for row in now if row.account in accounts}
    assert set(found.members()) == {(row.account, row.user) for row in found}


@given(ROWS, NAMES)
def test_a_snapshot_answers_alike_from_either(rows: frozenset[Association], user: str) -> None:
    plain, compact = Snapshot("c1", associations=rows), Snapshot("c1", associations=Associations(rows))
    assert plain == compact
    assert plain.accounts_of(user) == compact.accounts_of(user) == {r.account for r in rows if r.user == user}


def test_what_is_no_association_is_not_in_it() -> None:
    assert "ann" not in Associations([Association("a", "ann")])
    assert not Associations()


def test_accounts_in_a_circle_end_the_search_for_what_counts() -> None:
    accounts = {name: Account(name, above) for name, above in (("a", "b"), ("b", "a"), ("c", "c"))}
    snapshot = Snapshot("c1", accounts=accounts)
    for name in accounts:
        assert not snapshot.refuses_jobs(name)
        assert snapshot.default_qos_of(name) == ""
