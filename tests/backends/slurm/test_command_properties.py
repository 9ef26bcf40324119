# SPDX-License-Identifier: MIT
"""What holds of the commands of any plan whatever."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from agent.core.actions import AddMember, ClusterAction, RemoveMember, only
from backends.slurm.commands import Batch, CommandBuilder
from backends.slurm.costs import leading_actions
from tests.backends.slurm.wanted import account, delete, join, leave, limits, move

COMMANDS = CommandBuilder("c1")
NAMES = st.sampled_from(["a", "b", "c", "d"])
ACTIONS = st.lists(
    st.one_of(
        st.builds(account, NAMES, NAMES),
        st.builds(join, NAMES, st.sampled_from("uvw")),
        st.builds(leave, NAMES, st.sampled_from("uvw")),
        st.builds(delete, NAMES, NAMES),
        st.builds(limits, NAMES, cpu=st.integers(0, 2)),
        st.builds(move, st.sampled_from("uvw"), NAMES, NAMES),
    ),
    max_size=12,
)


@given(wanted=ACTIONS)
def test_every_action_is_in_exactly_one_batch_and_the_commands_are_always_the_same(
    wanted: list[ClusterAction],
) -> None:
    batches = COMMANDS.batches(wanted)
    carried = [action for batch in batches for action in batch.actions]
    assert len(carried) == len(set(carried))
    assert set(carried) == set(wanted)
    assert COMMANDS.batches(wanted) == batches


def named_pairs(batch: Batch) -> set[tuple[str, str]]:
    words = dict(word.split("=", 1) for word in batch.argv if "=" in word)
    return {(name, user) for name in words["account"].split(",") for user in words["name"].split(",")}


def pairs_of(actions: Iterable[ClusterAction]) -> set[tuple[str, str]]:
    return {(a.account, a.user) for a in actions if isinstance(a, AddMember | RemoveMember)}


@given(wanted=ACTIONS)
def test_a_batch_says_nothing_that_its_actions_do_not_ask_for(wanted: list[ClusterAction]) -> None:
    """A command with several users and several accounts means every pair: all of them must be wanted."""
    for batch in COMMANDS.batches(wanted):
        if batch.argv[1] == "user" and batch.argv[0] in ("add", "remove"):
            assert named_pairs(batch) == pairs_of(batch.actions)


# Who is in which account, who of them leaves or is refused to, and whose default account that is.
TREES = st.dictionaries(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from("tuvwxyz")),
    st.sampled_from(("stays", "leaves", "refused", "last")),
)
# More accounts of one user than a command carries, one of which they cannot leave, and others who leave that one.
BUSY = {("a", "t"): "refused"} | {(name, "t"): "leaves" for name in "bcde"}


@given(tree=TREES, at_most=st.integers(1, 8))
@example(tree={**BUSY, ("a", "u"): "leaves"}, at_most=4)
@example(tree={**BUSY, ("a", "u"): "leaves", ("b", "v"): "leaves", ("c", "w"): "leaves"}, at_most=3)
def test_commands_for_those_who_are_there_end_what_is_wanted_once_and_nothing_else(
    tree: dict[tuple[str, str], str], at_most: int
) -> None:
    there = set(tree)
    leavers = [leave(*pair, default=how == "last") for pair, how in tree.items() if how != "stays"]

    def users_of(account: str) -> set[str]:
        return {user for name, user in there if name == account}

    while leavers:
        batches = COMMANDS.removals(leavers, users_of)
        assert sorted(pairs_of(a for batch in batches for a in batch.actions)) == sorted(pairs_of(leavers))
        assert len(batches) <= len(COMMANDS.batches(leavers))
        some = only(RemoveMember, leading_actions(batches[0].actions, at_most))
        assert 0 < len(some) <= at_most
        assert named_pairs(COMMANDS.removal(some)) & there == pairs_of(some)
        there -= {pair for pair in pairs_of(some) if tree[pair] != "refused"}
        leavers = [action for action in leavers if action not in some]


def test_people_who_leave_all_that_is_left_share_a_command() -> None:
    leavers = [leave(f"a{n}", f"u{n}_{m}") for n in range(20) for m in range(10)]
    pairs = {(a.account, a.user) for a in leavers}
    (batch,) = COMMANDS.removals(leavers, lambda name: {user for account, user in pairs if account == name})
    assert pairs_of(batch.actions) == pairs_of(leavers)
    pairs |= {("a7", "u3_1")}
    both = COMMANDS.removals(leavers, lambda name: {user for account, user in pairs if account == name})
    assert [[a.user for a in each.actions] for each in both][1:] == [["u3_1"]]


def test_no_command_names_more_than_may_be_in_one_argument() -> None:
    leavers = [leave(f"a{n // 2}", f"u{n}") for n in range(1_400)] + [leave(f"b{n}", "v") for n in range(600)]
    for batch in COMMANDS.removals([*leavers, leave("b7", "w")], lambda _: frozenset()):
        assert max(len(word.split(",")) for word in batch.argv) <= 500
        assert "v" not in {user for _, user in named_pairs(batch) - pairs_of(batch.actions)}
