# SPDX-License-Identifier: MIT
"""What holds of the commands of any plan whatever."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.actions import AddMember, ClusterAction, RemoveMember
from backends.slurm.commands import CommandBuilder
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


@given(wanted=ACTIONS)
def test_a_batch_says_nothing_that_its_actions_do_not_ask_for(wanted: list[ClusterAction]) -> None:
    """A command with several users and several accounts means every pair: all of them must be wanted."""
    for batch in COMMANDS.batches(wanted):
        if batch.argv[1] != "user" or batch.argv[0] not in ("add", "remove"):
            continue
        words = dict(word.split("=", 1) for word in batch.argv if "=" in word)
        pairs = {(name, user) for name in words["account"].split(",") for user in words["name"].split(",")}
        assert pairs == {
            (a.account, a.user) for a in batch.actions if isinstance(a, AddMember | RemoveMember)
        }
