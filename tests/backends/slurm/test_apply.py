# SPDX-License-Identifier: MIT
"""Carrying out: what is tried after what failed, who is blamed, and what must not happen any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.actions import ClusterAction, CreateAccount, CreateQos, MoveDefaultAccount, SetLimits, SetQos
from agent.core.association_actions import ResetQosUsage
from agent.core.errors import (
    BackendUnavailable,
    ClusterBusy,
    PlanRefused,
)
from backends.base import HintsOfThisProcess
from backends.free_text import plain
from backends.lock import WriteLock
from backends.process import CommandMissing, Runner
from backends.slurm.apply import Writer
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import Costs
from backends.slurm.jobs import Jobs
from backends.slurm.programs import Programs
from tests.backends.slurm.stand_in import (
    OUTAGES,
    REST_OF_X,
    HeadNode,
    Rule,
    account,
    applied,
    errors,
    join,
    limits,
    removal,
)

# Running ------------------------------------------------------------------------------------------

MIXED: list[ClusterAction] = [
    account("p"),
    account("a", "p"),
    limits("a"),
    join("a", "ann"),
    MoveDefaultAccount(account="y", user="bob", before="x"),
    *removal("x"),
]


def test_what_is_printed_is_what_is_run_in_that_order_under_the_lock(node: HeadNode) -> None:
    printed = list(node.backend().commands(MIXED))
    outcomes = applied(node, MIXED)
    assert errors(outcomes) == {}
    run = [line for line in node.calls() if "show assoc" not in line and not line.startswith("squeue")]
    folder = f"{node.bin}/"
    assert run == [
        line.removeprefix(folder).replace(" --immediate --parsable2 --noheader", "") for line in printed
    ]
    assert node.was_locked("sacctmgr") == {True}
    assert node.was_locked("scancel") == node.was_locked("squeue") == {False}, (
        "others may write in the meantime"
    )
    assert [command.removeprefix(folder) for o in outcomes for command in o.commands][:2] == [
        "sacctmgr --immediate --parsable2 --noheader add account name=p cluster=c1 parent=root description=d "
        "organization=o",
        "sacctmgr --immediate --parsable2 --noheader add account name=a cluster=c1 parent=p description=d "
        "organization=o",
    ]


def test_commands_are_printed_so_that_they_can_be_pasted(node: HeadNode) -> None:
    wanted = CreateAccount(account="a", parent="root", description="x; rm -rf ~ $(id)", organization="it's")
    (line,) = node.backend().commands([wanted])
    assert "'description=x rm -rf id' 'organization=it s'" in line
    assert not node.calls()


def test_nothing_to_do_takes_no_lock_and_starts_nothing(node: HeadNode) -> None:
    with WriteLock(node.folder / "state", "slurmdbd"):
        assert applied(node, []) == []
    assert node.calls() == []


@pytest.mark.parametrize("cluster", ["", "c1", "c2"])
def test_all_writers_of_one_host_share_a_lock_whatever_they_call_the_cluster(
    node: HeadNode, cluster: str
) -> None:
    """Two offerings on one cluster wrote at once where only one of them had `cluster_name`."""
    assert errors(applied(node, [limits("a")], cluster_name=cluster)) == {}
    assert [path.name for path in (node.folder / "state" / "locks").iterdir()] == ["writes-slurmdbd.lock"]
    assert node.was_locked() == {True}


def test_a_refused_batch_is_tried_one_by_one_and_the_culprit_named(
    node: HeadNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.rules(
        Rule("name=a,b,d", 1, stderr=" Something about b\n"),
        Rule("name=b ", 1, stderr=" Something about b\n"),
    )
    outcomes = applied(node, [account("a"), account("b"), account("d")])
    (bad,) = (o for o in outcomes if o.error)
    assert bad.action == account("b")
    assert "name=b cluster=c1" in str(bad.error)
    assert str(bad.error).endswith("ended with 1: Something about b")
    assert [line.split()[2] for line in node.writes()] == ["name=a,b,d", "name=a", "name=b", "name=d"]
    assert "trying its 3 actions one by one" in caplog.text


def test_what_belongs_to_an_account_that_could_not_be_made_is_not_tried(node: HeadNode) -> None:
    """`add user … DefaultAccount=root` into a missing account fails, and leaves an association with root behind."""
    node.rules(Rule("name=b ", 1, stderr=" no\n"))
    wanted = [
        account("a"),
        account("b", "a"),
        account("d", "b"),
        limits("b"),
        join("d", "ann"),
        join("a", "ann"),
    ]
    assert errors(applied(node, wanted)) == dict.fromkeys(
        [
            "create account b below a",
            "create account d below b",
            "set limits b cpu=none->1",
            "add member ann to d",
        ],
        "CommandFailed",
    )
    assert [line.split()[:3] for line in node.writes()] == [
        ["add", "account", "name=a"],
        ["add", "account", "name=b"],
        ["add", "user", "name=ann"],
    ]


def test_a_qos_that_cannot_begin_at_zero_is_given_to_no_account_and_no_member_joins(node: HeadNode) -> None:
    """What a QoS of that name had counted would be used up of the new limit; without the QoS there is no limit."""
    node.rules(
        Rule("name=b set RawUsage=0", 1, stderr=" no\n"), Rule("name=a,b set RawUsage=0", 1, stderr=" no\n")
    )
    wanted: list[ClusterAction] = [account("a"), account("b")]
    for name in ("a", "b"):
        wanted += [
            CreateQos(account=name),
            ResetQosUsage(account=name),
            SetQos(account=name, after=("normal", name), default=name),
            join(name, "ann"),
        ]
    assert errors(applied(node, wanted)) == dict.fromkeys(
        ["reset usage of QoS b", "set QoS b none -> normal,b default b", "add member ann to b"],
        "CommandFailed",
    )
    assert not [line for line in node.writes() if "qos=normal,b" in line]


def test_a_name_that_slurm_cannot_take_fails_no_other_action(node: HeadNode) -> None:
    outcomes = applied(node, [join("a", "ann"), join("a", "x,root"), join("a", "bob")])
    assert errors(outcomes) == {"add member x,root to a": "PlanRefused"}
    assert node.writes() == ["add user name=ann,bob account=a cluster=c1 fairshare=parent"]
    assert isinstance(next(o.error for o in outcomes if o.error), PlanRefused)


def test_only_names_that_slurm_cannot_take_start_nothing(node: HeadNode) -> None:
    assert errors(applied(node, [limits("a b")])) == {"set limits a b cpu=none->1": "PlanRefused"}
    assert node.calls() == []


@pytest.mark.parametrize("number", range(1, 5))
def test_after_a_sign_of_an_outage_nothing_more_is_tried(node: HeadNode, number: int) -> None:
    needles = ["add account", "set GrpTRESMins", "add user", "set DefaultAccount"]
    node.rules(Rule(needles[number - 1], 1, stderr=OUTAGES[0]))
    wanted = [
        account("a"),
        limits("a"),
        join("a", "ann"),
        MoveDefaultAccount(account="a", user="u", before="x"),
    ]
    outcomes = applied(node, [*wanted, *removal("x")])
    assert len(node.calls()) == number
    assert [o.done for o in outcomes] == [True] * (number - 1) + [False] * (len(outcomes) - number + 1)
    assert {type(o.error) for o in outcomes if o.error} == {BackendUnavailable}
    # The outcome of an action that was not tried has not the command of the one that was.
    assert [str(o.error) for o in outcomes[number:]] == [
        "not tried: the accounting database does not answer"
    ] * (len(outcomes) - number)


def test_after_an_outage_among_single_actions_nothing_more_is_tried(node: HeadNode) -> None:
    node.rules(Rule("name=a,b,d,e", 1, stderr=" no\n"), Rule("name=b ", 1, stderr=OUTAGES[0]))
    outcomes = applied(node, [account(name) for name in "abde"])
    assert [line.split()[2] for line in node.writes()] == ["name=a,b,d,e", "name=a", "name=b"]
    assert [type(o.error).__name__ for o in outcomes] == ["NoneType", *["BackendUnavailable"] * 3]


def test_words_beside_a_success_are_logged(node: HeadNode, caplog: pytest.LogCaptureFixture) -> None:
    node.rules(Rule("set GrpTRESMins", 0, stderr=" These associations are\n looked at in vain.\n"))
    assert errors(applied(node, [limits("a")])) == {}
    assert "said: These associations are / looked at in vain." in caplog.text


@pytest.mark.parametrize("words", [" Nothing new added.", " Nothing modified", " Nothing deleted"])
def test_nothing_to_do_is_done(node: HeadNode, words: str) -> None:
    node.rules(Rule("sacctmgr --immediate", 1, stdout=f"{words}\n"))
    assert errors(applied(node, [limits("a"), limits("b"), join("a", "ann")])) == {}
    assert len(node.writes()) == 2


def test_a_writer_who_waits_in_vain_has_tried_nothing(tmp_path: Path) -> None:
    node = HeadNode(tmp_path)
    runner, builder = Runner(), CommandBuilder()
    lock = WriteLock(tmp_path / "state", "c1", wait_s=0)
    programs = Programs(str(node.bin))
    jobs = Jobs(runner, programs, "c1")
    costs = Costs(lambda: 0, HintsOfThisProcess[float]())
    tree = node.backend().observe
    writer = Writer(
        runner, builder, lock, programs=programs, tree=tree, members=lambda _: tree(), jobs=jobs, costs=costs
    )
    with WriteLock(tmp_path / "state", "c1"), pytest.raises(ClusterBusy):
        writer.apply([limits("a")], "")
    assert node.calls() == []


# Programs that are not there ----------------------------------------------------------------------


def test_without_sacctmgr_every_action_says_so(tmp_path: Path) -> None:
    node = HeadNode(tmp_path, programs=[])
    outcomes = applied(node, [account("a"), limits("b"), join("d", "ann")])
    assert {type(o.error) for o in outcomes} == {CommandMissing}


def test_without_scancel_an_account_stays(tmp_path: Path) -> None:
    node = HeadNode(tmp_path, programs=["sacctmgr", "squeue"])
    found = errors(applied(node, removal("x", "p")))
    assert found == dict.fromkeys(["cancel jobs of x", *REST_OF_X], "CommandMissing")


def test_without_squeue_sacctmgr_alone_guards_the_jobs(tmp_path: Path) -> None:
    """As with the emulator: how many jobs there are is unknown, and sacctmgr refuses while there are some."""
    node = HeadNode(tmp_path, programs=["sacctmgr", "scancel"])
    assert errors(applied(node, removal("x"))) == {}


# Texts and names of any length -----------------------------------------------------------------------

LONG = "a long name, é " * 10_000


def test_a_text_of_any_length_is_cut_and_a_name_of_any_length_fails_no_other_action(node: HeadNode) -> None:
    """Linux takes no word of 128 KiB in a command: a resource's name would keep its whole batch from beginning."""
    named = CreateAccount(account="long", parent="root", description=LONG, organization=LONG)
    outcomes = applied(
        node, [named, account("a"), account("x" * 140_000), join("a", "y" * 140_000), limits("a")]
    )
    assert sorted(set(errors(outcomes).values())) == ["PlanRefused"]
    assert sum(not outcome.done for outcome in outcomes) == 2
    assert all(len(str(outcome.error)) < 1000 for outcome in outcomes)
    (made,) = [line for line in node.writes() if "name=long" in line]
    text = made.partition("description=")[2].partition(" organization=")[0]
    assert text == plain(LONG)
    assert 250 <= len(text.encode()) <= 255


def test_actions_that_are_too_long_together_are_done_one_by_one_and_one_that_is_too_long_fails_alone(
    node: HeadNode,
) -> None:
    """160,000 letters of names in one word."""
    actions: list[ClusterAction] = [
        SetQos(account=f"{'n' * 240}{n}", default="normal", after=("normal",)) for n in range(700)
    ]
    wide = SetLimits(account="wide", after=tuple((f"gres/{'g' * 245}{n}", 1) for n in range(600)))
    outcomes = applied(node, [*actions, wide, limits("a")])
    assert errors(outcomes) == {wide.render(): "CommandTooLong"}
    assert "a name or text is too long" in str(next(o.error for o in outcomes if o.error))
