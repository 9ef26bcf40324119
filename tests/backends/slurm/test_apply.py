# SPDX-License-Identifier: MIT
"""Carrying out: what is tried after what failed, who is blamed, and what must not happen any more."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from agent.core.actions import ClusterAction, CreateAccount, CreateQos, MoveDefaultAccount, SetLimits, SetQos
from agent.core.association_actions import ResetQosUsage
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    ClusterBusy,
    CommandDenied,
    CommandFailed,
    JobsStillActive,
    PlanRefused,
)
from backends.base import CostsOfThisProcess
from backends.free_text import plain
from backends.lock import WriteLock
from backends.process import CommandMissing, Completed, Runner
from backends.slurm.apply import Writer
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import Costs
from backends.slurm.jobs import Jobs
from backends.slurm.programs import Programs, failure, output
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

# What an end means --------------------------------------------------------------------------------

ENDS: list[tuple[int, str, str, type[BackendError] | None]] = [
    (0, "", "", None),
    (0, " Modified account associations...\n", "", None),
    (0, "", " These associations don't have access to their default qos.\n", None),
    (1, " Nothing new added.\n", "", None),
    (1, " Nothing modified\n", "", None),
    (1, " Nothing deleted\n", "", None),
    (1, " Already existing account a on cluster c1\n", "", None),
    (1, "Request didn't affect anything\nNothing added.\nMake sure the accounts exist.\n", "", None),
    (1, " Nothing new added.\n", "No blank names are allowed when adding.", CommandFailed),
    (1, "", " Nothing new added.\n", CommandFailed),
    (2, " Nothing modified\n", "", CommandFailed),
    (1, "", "", CommandFailed),
    (1, " Adding User(s)\n", " This account 'x' doesn't exist.\n", CommandFailed),
    (
        1,
        " Can't modify because these users aren't associated with new default account 'a'...\n",
        "",
        CommandFailed,
    ),
    (1, "", " Error with request: Job(s) active, cancel job(s) before remove\n", JobsStillActive),
    (1, " Error with request: Job(s) active, cancel job(s) before remove\n", "", JobsStillActive),
    (1, "", " Problem adding accounts: Access/permission denied\n", CommandDenied),
    (-9, "", "", CommandFailed),
    *((1, "", words, BackendUnavailable) for words in OUTAGES),
    (0, "", OUTAGES[0], BackendUnavailable),
]


@pytest.mark.parametrize(("code", "stdout", "stderr", "kind"), ENDS)
def test_the_end_of_a_command_means(
    code: int, stdout: str, stderr: str, kind: type[BackendError] | None
) -> None:
    completed = Completed(("sacctmgr", "x"), code, stdout, stderr, 0.1)
    error = failure(completed)
    assert type(error) is (kind or type(None))
    if error is None:
        assert output(completed) == stdout
    else:
        assert "\n" not in str(error)
        assert "`sacctmgr x`" in str(error)
        with pytest.raises(type(error)):
            output(completed)


@pytest.mark.parametrize(
    "name", ["deadlock", "munged", "a_munged-2", "persist_init", "lock.wait", "a_deadlocks", "connection"]
)
@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (" This account '{name}' doesn't exist.\n", CommandFailed),
        (" Problem adding users: {name}\n", CommandFailed),
        (" Error with request: Job(s) active, cancel job(s) before remove\n  {name}\n", JobsStillActive),
        (" Problem adding accounts: Access/permission denied\n {name}\n", CommandDenied),
        (
            "sacctmgr: error: Problem talking to the database: Connection refused\n {name}\n",
            BackendUnavailable,
        ),
    ],
)
def test_a_name_that_holds_the_words_of_an_outage_is_none(
    name: str, stderr: str, kind: type[BackendError]
) -> None:
    argv = ("sacctmgr", "add", "user", f"name={name}", f"account={name},b")
    assert type(failure(Completed(argv, 1, "", stderr.format(name=name), 0.1))) is kind
    assert failure(Completed(argv, 0, f" {name}\n", f" {name}\n", 0.1)) is None


@pytest.mark.parametrize(
    "text", ["Connection refused", "Job(s) active", "Permission denied", "Nothing added"]
)
def test_our_own_free_text_is_not_looked_at(text: str) -> None:
    """A description is what somebody has called a resource."""
    argv = ("sacctmgr", "add", "account", "name=x", f"description={text} by all")
    said = f" Description = {text} by all\n Unknown option\n"
    assert type(failure(Completed(argv, 1, said, said, 0.1))) is CommandFailed
    assert type(failure(Completed(argv, 1, said, "", 0.1))) is CommandFailed


def test_a_refusal_is_told_before_an_outage() -> None:
    said = (
        "error: persistent connection closed\n Error with request: Job(s) active, cancel job(s) before remove"
    )
    assert type(failure(Completed(("sacctmgr",), 1, "", said, 0.1))) is JobsStillActive


@pytest.mark.parametrize(
    "said",
    [
        "error: persistent connection init message to db:6819: Access/permission denied\n"
        "error: Sending PersistInit msg: Access/permission denied",
        "error: Problem talking to the database: Connection refused\n Job(s) active, cancel job(s) before remove",
        " Problem adding accounts: Access/permission denied\nerror: slurmdbd: Connection refused",
    ],
)
def test_without_a_connection_nothing_was_refused(said: str) -> None:
    error = failure(Completed(("sacctmgr",), 1, "", said, 0.1))
    assert type(error) is BackendUnavailable
    assert error.retryable


def test_behind_ssh_our_own_free_text_is_not_looked_at_either(tmp_path: Path) -> None:
    """There the whole command is one word."""
    ssh, sacctmgr = tmp_path / "ssh", tmp_path / "sacctmgr"
    ssh.write_text('#!/bin/sh\nshift\nexec /bin/sh -c "$*"\n')
    sacctmgr.write_text('#!/bin/sh\necho " Unknown option: $3" >&2\nexit 1\n')
    for program in (ssh, sacctmgr):
        program.chmod(0o755)
    command = [str(sacctmgr), "name=x", "account=y", "description=Broken pipe by all"]
    runner = Runner(prefix=[str(ssh), "head"])
    for done in (runner.read(command), runner.write(command, WriteLock(tmp_path, "c1"))):
        assert "Broken pipe by all" in done.stderr
        assert type(failure(done)) is CommandFailed


def test_what_a_signal_ended_may_be_tried_again_and_a_refusal_not() -> None:
    killed, refused = (failure(Completed(("x",), code, "", "no", 0)) for code in (-signal.SIGKILL, 1))
    assert killed is not None
    assert refused is not None
    assert (killed.retryable, refused.retryable) == (True, False)


def test_a_missing_right_is_told_with_what_to_give() -> None:
    error = failure(Completed(("x",), 1, "", " Error with request: Access/permission denied", 0))
    assert "needs AdminLevel Operator" in str(error)


# Running ------------------------------------------------------------------------------------------

MIXED: list[ClusterAction] = [
    account("p"),
    account("a", "p"),
    limits("a"),
    join("a", "ann"),
    MoveDefaultAccount(account="y", user="bob", before="x"),
    *removal("x"),
]


def test_what_is_shown_is_what_is_run_in_that_order_under_the_lock(node: HeadNode) -> None:
    shown = list(node.backend().commands(MIXED))
    outcomes = applied(node, MIXED)
    assert errors(outcomes) == {}
    run = [line for line in node.calls() if "show assoc" not in line and not line.startswith("squeue")]
    folder = f"{node.bin}/"
    assert run == [
        line.removeprefix(folder).replace(" --immediate --parsable2 --noheader", "") for line in shown
    ]
    assert node.was_locked("sacctmgr") == {True}
    assert node.was_locked("scancel") == node.was_locked("squeue") == {False}, "others may write meanwhile"
    assert [command.removeprefix(folder) for o in outcomes for command in o.commands][:2] == [
        "sacctmgr --immediate --parsable2 --noheader add account name=p cluster=c1 parent=root description=d "
        "organization=o",
        "sacctmgr --immediate --parsable2 --noheader add account name=a cluster=c1 parent=p description=d "
        "organization=o",
    ]


def test_commands_are_shown_so_that_they_can_be_pasted(node: HeadNode) -> None:
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


def test_a_qos_that_cannot_begin_at_zero_is_given_to_nobody_and_nobody_joins(node: HeadNode) -> None:
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


def test_a_name_that_slurm_cannot_take_harms_nobody_else(node: HeadNode) -> None:
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
    # Who was not tried does not tell the command of the one that was.
    assert [str(o.error) for o in outcomes[number:]] == [
        "not tried: the accounting database does not answer"
    ] * (len(outcomes) - number)


def test_after_an_outage_among_single_actions_nothing_more_is_tried(node: HeadNode) -> None:
    node.rules(Rule("name=a,b,d,e", 1, stderr=" no\n"), Rule("name=b ", 1, stderr=OUTAGES[0]))
    outcomes = applied(node, [account(name) for name in "abde"])
    assert [line.split()[2] for line in node.writes()] == ["name=a,b,d,e", "name=a", "name=b"]
    assert [type(o.error).__name__ for o in outcomes] == ["NoneType", *["BackendUnavailable"] * 3]


def test_words_beside_a_success_are_logged(node: HeadNode, caplog: pytest.LogCaptureFixture) -> None:
    node.rules(
        Rule("set GrpTRESMins", 0, stderr=" These associations don't have access\n to their default qos.\n")
    )
    assert errors(applied(node, [limits("a")])) == {}
    assert "said: These associations don't have access / to their default qos." in caplog.text


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
    costs = Costs(lambda: 0, CostsOfThisProcess())
    tree = node.backend().observe
    writer = Writer(runner, builder, lock, programs=programs, tree=tree, jobs=jobs, costs=costs)
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
    """As with the emulator: nobody knows how many jobs there are, and sacctmgr refuses while there are some."""
    node = HeadNode(tmp_path, programs=["sacctmgr", "scancel"])
    assert errors(applied(node, removal("x"))) == {}


# Texts and names of any length -----------------------------------------------------------------------

LONG = "a long name, é " * 10_000


def test_a_text_of_any_length_is_cut_and_a_name_of_any_length_harms_nobody_else(node: HeadNode) -> None:
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
