# SPDX-License-Identifier: MIT
"""What sacctmgr does unexpectedly, by generation of SLURM: `test_facts` runs it, docs/slurm.md shows it (`make docs`).

Each fact begins with the tree of `TREE`. A change is written as what appears on the cluster (+) and what vanishes (-).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

GENERATIONS = ("22.05", "24.11", "26.05")
TREE = """\
Cluster - 'test'
Parent - 'root'
Account - 'top'
Parent - 'top'
Account - 'full'
Account - 'going'
Account - 'home'
Account - 'kids'
Account - 'limited':GrpTRESMins='cpu=60,mem=2048'
Account - 'parts'
Account - 'special'
Parent - 'kids'
Account - 'kid'
Parent - 'kid'
User - 'zoe':Fairshare=parent
Parent - 'full'
User - 'amy':DefaultAccount='home':Fairshare=parent
User - 'bob':Fairshare=parent
Parent - 'going'
User - 'kim':DefaultAccount='going':Fairshare=parent
User - 'lou':DefaultAccount='home':Fairshare=parent
User - 'sue':Fairshare=parent
Parent - 'home'
User - 'amy':DefaultAccount='home':Fairshare=parent
User - 'ann':Fairshare=parent
User - 'kim':DefaultAccount='going':Fairshare=parent
User - 'lou':DefaultAccount='home':Fairshare=parent
Parent - 'special'
User - 'uma':Fairshare=parent
"""
# What a file cannot say.
COMMANDS = (
    "add qos name=fast,slow",
    "modify account where name=special set qos=normal,fast defaultqos=fast",
    "modify user where name=uma account=special set qos=normal,fast",
    "add user name=pam account=parts partition=main",
    "add user name=pam account=parts partition=gpu",
)


@dataclass(frozen=True)
class Answer:
    """The exit code, words of what it prints, and what it changes."""

    code: int
    says: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A command of sacctmgr, and how each of GENERATIONS answers."""

    command: str
    answers: tuple[Answer, Answer, Answer]
    before: tuple[str, ...] = ()


def done(*changes: str, says: str = "") -> Answer:
    return Answer(0, says, changes)


def refused(says: str, *changes: str) -> Answer:
    return Answer(1, says, changes)


def fact(command: str, *answers: Answer, before: tuple[str, ...] = ()) -> Fact:
    """Return a fact: with one answer all generations agree, with two 22.05 differs from the others."""
    old, middle, new = (answers * 3 if len(answers) == 1 else (*answers, answers[-1]))[:3]
    return Fact(command, (old, middle, new), before)


NOT_DEFAULT = "You can not remove the default account of a user"
NO_EFFECT = "Request didn't affect anything"
NO_QOS = "don't have access to their default qos"
SKIPPED = "No account gone on cluster test, skipping"
MARKED = "modify user where name=pam set DefaultAccount=parts"

FACTS: dict[str, Fact] = {
    # Adding
    "an account that stands elsewhere": fact(
        "add account name=home parent=root",
        refused("Nothing new added"), refused("Already existing account home"),
    ),
    "an account below a missing one": fact(
        "add account name=lost parent=nosuch",
        refused("Parent account 'nosuch' doesn't exist"), refused("No parent account 'nosuch'"),
    ),
    "a range in brackets": fact("add account name=r[1-2] parent=top", done("+r1 below top", "+r2 below top")),
    "a comma": fact(
        "remove account where name=r1,r2 cluster=test", done("-r1 below top", "-r2 below top"),
        before=("add account name=r1,r2 parent=top",),
    ),
    "a double quote": fact('add account name=q"uote parent=top', done("+q`uote below top")),
    "a word of the grammar": fact("show account set format=account", done(says="limited")),
    "capital letters": fact(
        "add user name=MixCase account=HOME", done("+mixcase defaults to home", "+mixcase in home")
    ),
    # Members
    "a user whom no machine knows": fact(
        "add user name=nounix account=home", done("+nounix defaults to home", "+nounix in home")
    ),
    "a member who is one already": fact(
        "add user name=ann account=home", refused("Nothing new added"), refused("Nothing added")
    ),
    "a member of a missing account": fact(
        "add user name=new account=gone", refused("This account 'gone' doesn't exist"), refused(SKIPPED)
    ),
    "a member of two accounts, one of them missing": fact(
        "add user name=new account=gone,home",
        refused("This account 'gone' doesn't exist", "+new defaults to home", "+new in home"),
        done("+new defaults to home", "+new in home", says=SKIPPED),
    ),
    "a default account elsewhere": fact(
        "add user name=new account=home DefaultAccount=root",
        done("+new defaults to root", "+new in home", "+new in root"),
    ),
    "a default account elsewhere, the account itself missing": fact(
        "add user name=new account=gone DefaultAccount=root",
        refused("This account 'gone' doesn't exist", "+new defaults to root", "+new in root"),
        done("+new defaults to root", "+new in root", says=SKIPPED),
    ),
    "another default account of who has one": fact(
        "add user name=bob account=limited DefaultAccount=limited",
        done("+bob defaults to limited", "+bob in limited", "-bob defaults to full"),
    ),
    "a missing QoS of a member": fact(
        "add user name=new account=home qoslevel=nosuch", refused("You gave a bad qos")
    ),
    "a missing partition": fact(
        "add user name=new account=home partition=nopart",
        done("+new defaults to home", "+new in home on nopart"),
    ),
    "a default account without an association": fact(
        "modify user where name=ann set DefaultAccount=full", refused("aren't associated with new default account")
    ),
    "no default account": fact("modify user where name=ann set DefaultAccount=", refused(NOT_DEFAULT)),
    # QoS
    "QoS of a new member without the account's default": fact(
        "add user name=new account=special qoslevel=normal",
        done("+new defaults to special", "+new in special", "+new in special QoS normal"),
        refused("would not have access to their default qos"),
    ),
    "QoS of a new member with a default of their own": fact(
        "add user name=new account=special qoslevel=normal defaultqos=normal",
        done("+new defaults to special", "+new in special", "+new in special QoS normal default normal"),
    ),
    "QoS of a member without the account's default": fact(
        "modify user where name=uma account=special set qos=normal", done(says=NO_QOS), refused(NO_QOS)
    ),
    "QoS of an account without its default": fact(
        "modify account where name=special set qos=normal", done(says=NO_QOS), refused(NO_QOS)
    ),
    "a default QoS of an account that a member's own QoS lack": fact(
        "modify account where name=special set qos=slow defaultqos=slow", done(says=NO_QOS), refused(NO_QOS)
    ),
    "a default QoS of an account that was added to a member's own QoS": fact(
        "modify account where name=special set qos=slow defaultqos=slow",
        done("+special QoS slow default slow", "-special QoS fast,normal default fast"),
        before=("modify user where name=uma account=special partition= set qos+=slow",),
    ),
    "a missing QoS of an account": fact(
        "modify account where name=special set qos=nosuch", refused("You gave a bad qos")
    ),
    "QoS of a missing account": fact(
        "modify account where name=gone set qos=fast defaultqos=fast",
        refused("Nothing modified"), refused(NO_EFFECT), refused("Nothing modified"),
    ),
    "the removal of a QoS that is a default": fact(
        "remove qos where name=fast", refused("have these as their Default QOS")
    ),
    # Limits
    "a fraction": fact(
        "modify account where name=limited set GrpTRESMins=cpu=1.5",
        done("+limited cpu=1", "-limited cpu=60", says="Invalid unit type"),
    ),
    "a number that is too great": fact(
        "modify account where name=limited set GrpTRESMins=cpu=99999999999999999999",
        done("-limited cpu=60", says="Modified"),
    ),
    "the limit -1": fact("modify account where name=limited set GrpTRESMins=cpu=-1", done("-limited cpu=60")),
    "an unknown TRES": fact(
        "modify account where name=limited set GrpTRESMins=bogus=1,cpu=5", refused("no TRES known by type bogus")
    ),
    "a limit of a missing account": fact(
        "modify account where name=gone set GrpTRESMins=cpu=1",
        refused("Nothing modified"), refused(NO_EFFECT), refused("Nothing modified"),
    ),
    # Moving
    "a move below a missing account": fact(
        "modify account where name=home set parent=nosuch",
        refused("Parent Account nosuch doesn't exist"),
        done(says="Modified account associations"),
        done(says="Parent account nosuch doesn't exist"),
    ),
    "a move to where it is": fact(
        "modify account where name=kid set parent=kids",
        refused("Nothing modified"), refused(NO_EFFECT), refused("Nothing modified"),
    ),
    "a move below itself": fact(
        "modify account where name=home set parent=home",
        refused("Nothing modified"), refused(NO_EFFECT), done(says="is a child of home"),
    ),
    "a move below an account that is in it": fact(
        "modify account where name=kids set parent=kid",
        done("+kid below top", "+kids below kid", "-kid below kids", "-kids below top"),
        done("+kid below top", "+kids below kid", "-kid below kids", "-kids below top"),
        done(says="Please re-parent kid"),
    ),
    # Removing
    "what is missing": fact(
        "remove user where name=nobody account=home cluster=test", refused("Nothing deleted")
    ),
    "a member from the default account, with another one left": fact(
        "remove user where name=kim account=going cluster=test",
        done("-kim defaults to going", "-kim in going"), refused(NOT_DEFAULT),
    ),
    "a member from the last account": fact(
        "remove user where name=sue account=going cluster=test",
        done("-sue defaults to going", "-sue in going", says="Deleting users (No Associations)"),
    ),
    "several, one of whom defaults there and has another account": fact(
        "remove user where name=kim,lou account=going cluster=test",
        done("-kim defaults to going", "-kim in going", "-lou in going"), refused(NOT_DEFAULT),
    ),
    "several: behind one who defaults elsewhere one who has no other account": fact(
        "remove user where name=lou,sue account=going cluster=test",
        refused(NOT_DEFAULT), done("-lou in going", "-sue defaults to going", "-sue in going"),
    ),
    "a user altogether": fact(
        "remove user where name=kim", done("-kim defaults to going", "-kim in going", "-kim in home")
    ),
    "all accounts of a user at once": fact(
        "remove user where name=kim account=going,home cluster=test",
        refused(NOT_DEFAULT), done("-kim defaults to going", "-kim in going", "-kim in home"),
    ),
    "an account, default of who has another one": fact(
        "remove account where name=going cluster=test", refused(NOT_DEFAULT)
    ),
    "an account, default of who has no other one": fact(
        "remove account where name=full cluster=test",
        refused(NOT_DEFAULT), done("-amy in full", "-bob defaults to full", "-bob in full", "-full below top"),
    ),
    "an account whose members default elsewhere": fact(
        "remove account where name=full cluster=test",
        done("-amy in full", "-full below top"),
        before=("remove user where name=bob account=full",),
    ),
    "a partition of the default account, the first that was given": fact(
        "remove user where name=pam account=parts partition=main cluster=test",
        done("-pam defaults to parts", "-pam in parts on main"), refused(NOT_DEFAULT),
    ),
    "a partition of the default account, another one": fact(
        "remove user where name=pam account=parts partition=gpu cluster=test", done("-pam in parts on gpu")
    ),
    "a partition of the default account, which was set as that by name": fact(
        "remove user where name=pam account=parts partition=main cluster=test",
        done("-pam in parts on main"), refused(NOT_DEFAULT), done("-pam in parts on main"),
        before=(MARKED,),
    ),
    "a partition of an account that is not the default any more": fact(
        "remove user where name=pam account=parts partition=main cluster=test",
        done("-pam in parts on main"),
        before=(MARKED, "add user name=pam account=home DefaultAccount=home"),
    ),
}  # fmt: skip
# Read from the database: 24.11 leaves accounts without a parent, and does not answer a read of the tree any more.
BELOW = "an account with others below it"
WITH_OTHERS_BELOW = fact(
    "remove account where name=kids cluster=test",
    done("-kid below kids", "-kids below top", "-zoe in kid"),
    done("-kids below top", says="Deleting account associations"),
    done("-kid below kids", "-kids below top", "-zoe in kid"),
)


def page() -> Iterator[str]:
    """Yield the lines of the table in docs/slurm.md."""
    yield f"| what | command | {' | '.join(GENERATIONS)} |"
    yield f"|{'---|' * (2 + len(GENERATIONS))}"
    for name, each in {**FACTS, BELOW: WITH_OTHERS_BELOW}.items():
        old, middle, new = map(_cell, each.answers)
        shown = (old, "same" if middle == old else middle, {middle: "as 24.11", old: "same"}.get(new, new))
        after = f" (after `{'`, `'.join(each.before)}`)" if each.before else ""
        yield f"| {name} | `{each.command.replace('`', '``')}`{after} | {' | '.join(shown)} |"


def _cell(answer: Answer) -> str:
    changes = ", ".join(answer.changes).replace("`", "'") or "-"
    said = f" *{answer.says}*" if answer.says else ""
    return f"rc {answer.code}{said}; {changes}"
