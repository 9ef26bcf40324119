# SPDX-License-Identifier: MIT
"""Removing: what is waited for, what stops a removal, and what stays because of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.actions import (
    BlockSubmission,
    ClusterAction,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
)
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    NotEmpty,
    ParseError,
)
from agent.core.plans import Outcome
from backends.base import BackendContext, HintsOfThisProcess
from backends.lock import WriteLock
from backends.process import Runner
from backends.slurm.apply import Writer
from backends.slurm.commands import CommandBuilder
from backends.slurm.costs import UNIT, Costs
from backends.slurm.jobs import Jobs
from backends.slurm.programs import Programs
from tests.backends.slurm.stand_in import (
    OUTAGES,
    REST_OF_X,
    ROOT,
    HeadNode,
    Rule,
    applied,
    errors,
    removal,
)


def remove_two(node: HeadNode) -> list[Outcome]:
    """Accounts x and y below p, and p with them."""
    return applied(node, [*removal("x", "p"), *removal("y", "p"), DeleteAccount(account="p", parent="root")])


def test_accounts_and_their_parent_go_when_nothing_is_in_the_way(node: HeadNode) -> None:
    assert errors(remove_two(node)) == {}
    assert [line for line in node.calls() if "show assoc" not in line] == [
        "sacctmgr modify account where name=x,y cluster=c1 set GrpSubmitJobs=0",
        "scancel --clusters=c1 --account=x",
        "scancel --clusters=c1 --account=y",
        "squeue --noheader --all --clusters=c1 --account=x,y --format=%a|%u",
        "sacctmgr remove user where name=ann account=x,y cluster=c1",
        "sacctmgr remove account where name=x,y cluster=c1",
        "sacctmgr remove account where name=p cluster=c1",
        "sacctmgr remove qos where name=x,y",
    ]
    assert len([line for line in node.calls() if "cluster,account,qos,defaultqos" in line]) == 1


def test_a_qos_that_another_cluster_uses_is_left(node: HeadNode) -> None:
    node.rules(Rule("cluster,account,qos,defaultqos", 0, stdout="c2|x|normal,x|x\nc2|other|normal|\n"))
    outcomes = node.backend({"cluster_name": "c1"}).apply([DeleteQos(account="x"), DeleteQos(account="y")])
    assert errors(outcomes) == {"delete QoS x": "DoneInPart"}
    assert "account x on cluster c2 has it" in str(outcomes[0].error)
    assert [line for line in node.writes() if "qos" in line] == ["remove qos where name=y"]


IN_ACCOUNTS = "account=root,x,y,z"
SLOW_REMOVALS = {"remove user": 0.01, f"remove user{UNIT}": 1.0}


def leavers(**users: str) -> list[ClusterAction]:
    return [RemoveMember(account=account, user=user) for account in users for user in users[account]]


def standing(**users: str) -> Rule:
    """Who is in the accounts when they are asked for by name."""
    rows = [f"c1|{account}|||root|||||" for account in users]
    rows += [f"c1|{account}|{user}|||||||" for account in users for user in users[account]]
    return Rule(f"account={','.join(['root', *users])}", 0, stdout="\n".join(["c1|root||||||||", *rows, ""]))


def in_small_portions(node: HeadNode, actions: list[ClusterAction]) -> list[Outcome]:
    """Three removals at first."""
    learnt = HintsOfThisProcess(SLOW_REMOVALS)
    context = BackendContext("0" * 32, node.folder / "state", costs=lambda _: learnt)
    return list(node.backend(context=context).apply(actions))


def test_members_of_several_accounts_leave_with_one_command_after_a_look_at_who_is_in_these(
    node: HeadNode,
) -> None:
    node.rules(standing(x="abo", y="cd", z="ef"))
    assert errors(applied(node, leavers(x="ab", y="cd", z="ef"))) == {}
    assert node.writes() == ["remove user where name=a,b,c,d,e,f account=x,y,z cluster=c1"]
    assert len([line for line in node.calls() if IN_ACCOUNTS in line]) == 1


def test_who_joined_another_of_these_accounts_meanwhile_stays_in_that(node: HeadNode) -> None:
    node.rules(standing(x="ab", y="cda", z="ef"))
    assert errors(applied(node, leavers(x="ab", y="cd", z="ef"))) == {}
    assert node.writes() == [
        "remove user where name=b,c,d,e,f account=x,y,z cluster=c1",
        "remove user where name=a account=x cluster=c1",
    ]


def test_who_is_there_is_looked_at_before_each_command(node: HeadNode) -> None:
    """Between two of them the lock is given to an order, which may have somebody join an account that others leave."""
    node.rules(standing(w="abc", x="def", y="gh", z="ij"), standing(x="def", y="ghd", z="ij"))
    outcomes = in_small_portions(node, leavers(w="abc", x="def", y="gh", z="ij"))
    assert errors(outcomes) == {}
    assert [line.split()[3:5] for line in node.writes()] == [
        ["name=a,b,c", "account=w"],
        ["name=e,f,g,h,i,j", "account=x,y,z"],
        ["name=d", "account=x"],
    ]


def test_who_has_jobs_in_one_account_is_not_named_with_those_who_leave_it_after(node: HeadNode) -> None:
    """The accounts of one user may be more than a command carries."""
    wanted = {"p": "a", "q": "ab", "r": "a", "s": "ac", "t": "a"}
    refused = Rule("name=a ", 1, stderr=" Error with request: Job(s) active\n")
    node.rules(refused, standing(**wanted), standing(q="ab", s="ac", t="a"))
    outcomes = in_small_portions(node, leavers(**wanted))
    left = {o.action.render() for o in outcomes if o.done}
    assert left == {"remove member b from q", "remove member c from s"}
    assert not [line for line in node.writes() if "name=a," in line]


def test_nobody_is_looked_at_after_an_outage(node: HeadNode) -> None:
    node.rules(Rule("modify account", 1, stderr=f"{OUTAGES[0]}\n"))
    wanted = [BlockSubmission(account="x"), *leavers(x="ab", y="cd", z="ef")]
    assert set(errors(applied(node, wanted)).values()) == {"BackendUnavailable"}
    assert len(node.calls()) == 1


def test_two_accounts_are_left_without_a_look(node: HeadNode) -> None:
    assert errors(applied(node, leavers(x="ab", y="cd"))) == {}
    assert not [line for line in node.calls() if "show assoc" in line]
    assert len(node.writes()) == 2


def test_where_nobody_can_look_members_leave_account_by_account(
    node: HeadNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.rules(Rule("account=root,", 1, stderr=" Problem with query\n"))
    assert errors(applied(node, leavers(x="ab", y="cd", z="ef", w="gh"))) == {}
    assert len(node.writes()) == 4
    assert len(node.calls()) == 5
    assert "Problem with query; members are removed account by account" in caplog.text


def test_members_leave_account_by_account_where_one_account_is_not_found(node: HeadNode) -> None:
    """Who is in it is unknown."""
    known = standing(x="ab", y="cd")
    node.rules(Rule(IN_ACCOUNTS, 0, stdout=known.stdout))
    assert errors(applied(node, leavers(x="ab", y="cd", z="ef"))) == {}
    assert len(node.writes()) == 3


def test_a_refused_command_for_several_accounts_is_tried_account_by_account(node: HeadNode) -> None:
    refused = " Error with request: Job(s) active\n"
    node.rules(
        standing(x="ab", y="cd", z="ef"),
        Rule("name=a,b,c", 1, stderr=refused),
        Rule("name=c", 1, stderr=refused),
    )
    outcomes = applied(node, leavers(x="ab", y="cd", z="ef"))
    assert errors(outcomes) == {"remove member c from y": "JobsStillActive"}
    assert [line.split()[3:5] for line in node.writes()] == [
        ["name=a,b,c,d,e,f", "account=x,y,z"],
        ["name=a,b", "account=x"],
        ["name=c,d", "account=y"],
        ["name=c", "account=y"],
        ["name=d", "account=y"],
        ["name=e,f", "account=z"],
    ]


def test_jobs_that_do_not_end_keep_their_account_and_its_parent_and_nothing_else(tmp_path: Path) -> None:
    node = HeadNode(tmp_path)
    node.rules(Rule("squeue --noheader --all", 0, stdout="x|ann\nx|bob\n"))
    programs = Programs(str(node.bin))
    runner = Runner()
    writer = Writer(
        runner,
        CommandBuilder(),
        WriteLock(tmp_path / "state", "c1"),
        programs=programs,
        tree=node.backend().observe,
        members=lambda _: node.backend().observe(),
        jobs=Jobs(runner, programs, "c1", grace_s=0),
        costs=Costs(lambda: 0, HintsOfThisProcess[float]()),
    )
    wanted = [*removal("x", "p"), *removal("y", "p"), DeleteAccount(account="p", parent="root")]
    outcomes = writer.apply(wanted, "")
    expected = ["cancel jobs of x", *REST_OF_X, "delete account p below root"]
    assert errors(outcomes) == dict.fromkeys(expected, "JobsStillActive")
    message = next(str(o.error) for o in outcomes if o.error)
    assert (
        message
        == "account x: 2 jobs are still ending 0 s after they were cancelled; the removal goes on in the next pass"
    )
    assert "remove account where name=y" in node.writes()
    assert not [line for line in node.writes() if "name=p" in line or "name=x" in line.split()[-1]]


def test_jobs_that_end_soon_are_waited_for(node: HeadNode) -> None:
    node.rules(Rule("squeue", 0, stdout="X|ann\n", times=1))
    assert errors(applied(node, removal("x"))) == {}
    assert len([line for line in node.calls() if line.startswith("squeue")]) == 2


REFUSALS: dict[str, tuple[Rule, str, list[str]]] = {
    "members with jobs": (
        Rule("remove user where name=ann account=x", 1, stderr=" Error with request: Job(s) active\n"),
        "JobsStillActive",
        [*REST_OF_X, "delete account p below root"],
    ),
    "a default account": (
        Rule("remove user where name=ann account=x", 1, stderr=" You can not remove the default account\n"),
        "CommandFailed",
        [*REST_OF_X, "delete account p below root"],
    ),
    "the account itself": (
        Rule("remove account where name=x", 1, stderr=" Error with request: Job(s) active\n"),
        "JobsStillActive",
        [*REST_OF_X[1:], "delete account p below root"],
    ),
    "scancel": (
        Rule("scancel --clusters=c1 --account=x", 1, stderr="scancel: error: no\n"),
        "CommandFailed",
        ["cancel jobs of x", *REST_OF_X, "delete account p below root"],
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_slurm_refuses_stops_the_rest_of_that_removal_only(node: HeadNode, what: str) -> None:
    rule, kind, lines = REFUSALS[what]
    node.rules(rule)
    assert errors(remove_two(node)) == dict.fromkeys(lines, kind)
    assert not [line for line in node.writes() if "name=p" in line]
    assert [line for line in node.writes() if line.startswith("remove account where name=y")]


def test_a_failed_block_does_not_stop_a_removal_that_slurm_itself_guards(node: HeadNode) -> None:
    node.rules(Rule("GrpSubmitJobs=0", 1, stderr=" no\n"))
    assert errors(applied(node, removal("x"))) == {"block submission x": "CommandFailed"}


def test_who_cannot_be_given_another_default_account_keeps_the_present_one(node: HeadNode) -> None:
    """Whose default account goes without that is left with none (22.05)."""
    node.rules(
        Rule("set DefaultAccount=z", 1, stdout=" Can't modify because these users aren't associated\n")
    )
    wanted = [MoveDefaultAccount(account="z", user="ann", before="x"), *removal("x", "p"), *removal("y", "p")]
    assert errors(applied(node, wanted)) == dict.fromkeys(
        ["move default account of ann from x to z", *REST_OF_X], "CommandFailed"
    )
    assert "remove user where name=ann account=y cluster=c1" in node.writes()


FILLED = {
    "an account below it": "c1|new|||x|||||\n",
    "a member": "c1|x|eve|||||||\n",
}


@pytest.mark.parametrize("what", FILLED)
def test_an_account_that_is_not_empty_is_not_deleted(node: HeadNode, what: str) -> None:
    """SLURM would take along all that is below it, with rc 0."""
    node.answer("assoc", f"{ROOT}c1|p|||root|||||\nc1|x|||p|||||\nc1|y|||p|||||\n{FILLED[what]}")
    deletions: list[ClusterAction] = [
        DeleteAccount(account="x", parent="p"),
        DeleteAccount(account="y", parent="p"),
    ]
    outcomes = applied(node, [*deletions, DeleteAccount(account="p", parent="root"), DeleteQos(account="x")])
    found = {o.action.account: o.error for o in outcomes if isinstance(o.action, DeleteAccount)}
    assert found["y"] is None
    assert isinstance(found["x"], NotEmpty)
    assert found["x"].retryable
    name = "new" if "new" in FILLED[what] else "eve"
    assert str(found["x"]) == f"account x is not empty: {name} would lose access with it"
    assert isinstance(found["p"], NotEmpty)
    assert node.writes() == ["remove account where name=y cluster=c1"]


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        (Rule("show assoc", 1, stderr=OUTAGES[0]), BackendUnavailable),
        (Rule("show assoc", 0, stdout=ROOT[:-1]), ParseError),
        (Rule("show assoc", 0, stdout=""), ParseError),
    ],
)
def test_nothing_is_deleted_without_a_look_at_what_is_below(
    node: HeadNode, rule: Rule, kind: type[BackendError]
) -> None:
    node.rules(rule)
    (outcome,) = applied(node, [DeleteAccount(account="x", parent="p")])
    assert type(outcome.error) is kind
    assert node.writes() == []


def test_one_look_serves_all_deletions_of_a_level(node: HeadNode) -> None:
    applied(node, [DeleteAccount(account=f"x{n}", parent="p") for n in range(20)])
    assert len(node.calls()) == 2
