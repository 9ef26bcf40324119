# SPDX-License-Identifier: MIT
"""Which actions share a command, what each command says word by word, and in which order they run."""

from __future__ import annotations

from itertools import permutations

import pytest

from agent.core import actions, association_actions
from agent.core.actions import (
    AllowMember,
    AllowSubmission,
    BlockMember,
    BlockSubmission,
    CancelJobs,
    ClusterAction,
    CreateQos,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
)
from agent.core.association_actions import (
    KeepDefaultAccount,
    RemovePartition,
    ResetQosUsage,
    SetMemberQos,
)
from agent.core.errors import BackendError, PlanRefused
from backends.slurm.commands import Batch, CommandBuilder
from backends.slurm.grouping import NAMES_AT_ONCE
from tests.backends.slurm.wanted import account, delete, join, leave, limits, move

COMMANDS = CommandBuilder("c1")
LOCAL = CommandBuilder(seen_cluster=lambda: "c1")


def said(batches: list[Batch]) -> list[str]:
    """Commands as one line each: words that hold a blank are in braces."""
    return [
        " ".join([b.program[:2], *(f"{{{word}}}" if " " in word else word for word in b.argv)])
        for b in batches
    ]


SINGLE: dict[str, tuple[ClusterAction, str]] = {
    "account": (
        account("a", "p", "My project", "Org"),
        "sa add account name=a cluster=c1 parent=p {description=My project} organization=Org",
    ),
    "account without texts": (
        account("a", "p", "", ""),
        "sa add account name=a cluster=c1 parent=p description=a organization=a",
    ),
    "account with texts that break lines": (
        account("a", "p", 'x\n"y" | z', "o\to"),
        "sa add account name=a cluster=c1 parent=p {description=x y z} {organization=o o}",
    ),
    "move": (
        MoveAccount(account="a", before="p", after="q"),
        "sa modify account where name=a cluster=c1 set parent=q",
    ),
    "own QoS": (
        CreateQos(
            account="a", flags="DenyOnLimit,NoDecay", limits=(("GrpTRES", "cpu=4,node=2"), ("MaxJobs", "5"))
        ),
        "sa add qos name=a {description=waldur-site-cluster: account a on c1} flags=DenyOnLimit,NoDecay "
        "GrpTRES=cpu=4,node=2 MaxJobs=5",
    ),
    "own QoS, plain": (
        CreateQos(account="a"),
        "sa add qos name=a {description=waldur-site-cluster: account a on c1}",
    ),
    "QoS begins at zero": (ResetQosUsage(account="a"), "sa modify qos where name=a set RawUsage=0"),
    "limits on the own QoS": (
        SetLimits(account="a", after=(("cpu", 600),), on_qos=True),
        "sa modify qos where name=a set GrpTRESMins=cpu=600",
    ),
    "QoS of a member": (
        SetMemberQos(account="a", user="u", after=("fast",), default="fast"),
        "sa modify user where name=u account=a cluster=c1 set qos=fast defaultqos=fast",
    ),
    "default account on all partitions": (
        KeepDefaultAccount(account="a", user="u"),
        "sa modify user where name=u cluster=c1 set DefaultAccount=a",
    ),
    "a partition of a member": (
        RemovePartition(account="a", user="u", partition="gpu"),
        "sa remove user where name=u account=a partition=gpu cluster=c1",
    ),
    "the association without a partition": (
        RemovePartition(account="a", user="u", partition=""),
        "sa remove user where name=u account=a partition= cluster=c1",
    ),
    "QoS of an account": (
        SetQos(account="a", after=("normal", "a"), default="a"),
        "sa modify account where name=a cluster=c1 set qos=normal,a defaultqos=a",
    ),
    "limits": (
        SetLimits(account="a", after=(("cpu", 600), ("gres/gpu:a100", 5), ("mem", 0))),
        "sa modify account where name=a cluster=c1 set GrpTRESMins=cpu=600,gres/gpu:a100=5,mem=0",
    ),
    "member": (join("a", "u"), "sa add user name=u account=a cluster=c1 fairshare=parent"),
    "member with a default account": (
        join("a", "u", default_account="d"),
        "sa add user name=u account=a cluster=c1 DefaultAccount=d fairshare=parent",
    ),
    "member on partitions with QoS": (
        join("a", "u", partitions=("gpu", "main"), qos=("fast", "slow"), default_qos="fast"),
        "sa add user name=u account=a cluster=c1 partitions=gpu,main qoslevel=fast,slow defaultqos=fast "
        "fairshare=parent",
    ),
    "default account": (move("u", "a", "b"), "sa modify user where name=u cluster=c1 set DefaultAccount=b"),
    "block": (BlockSubmission(account="a"), "sa modify account where name=a cluster=c1 set GrpSubmitJobs=0"),
    "allow": (AllowSubmission(account="a"), "sa modify account where name=a cluster=c1 set GrpSubmitJobs=-1"),
    "cancel": (CancelJobs(account="a"), "sc --clusters=c1 --account=a"),
    "block of a member": (
        BlockMember(account="a", user="u"),
        "sa modify user where name=u account=a cluster=c1 set MaxSubmitJobs=0",
    ),
    "a member back": (
        AllowMember(account="a", user="u"),
        "sa modify user where name=u account=a cluster=c1 set MaxSubmitJobs=-1",
    ),
    "cancel of one user": (CancelJobs(account="a", user="u"), "sc --clusters=c1 --account=a --user=u"),
    "limits of a user": (
        SetUserLimits(account="a", user="u", after=(("cpu", 60), ("mem", -1))),
        "sa modify user where name=u account=a cluster=c1 set MaxTRESMins=cpu=60,mem=-1",
    ),
    "leave": (leave("a", "u"), "sa remove user where name=u account=a cluster=c1"),
    "delete": (delete("a"), "sa remove account where name=a cluster=c1"),
    "delete own QoS": (DeleteQos(account="a"), "sa remove qos where name=a"),
}


def test_the_table_has_every_action_of_the_cluster() -> None:
    modules = (actions.__name__, association_actions.__name__)
    kinds = {
        k for k in actions.ACTION_CLASSES.values() if issubclass(k, ClusterAction) and k.__module__ in modules
    }
    assert {type(action) for action, _ in SINGLE.values()} == kinds


@pytest.mark.parametrize("what", SINGLE)
def test_a_single_command(what: str) -> None:
    action, line = SINGLE[what]
    batch = COMMANDS.single(action)
    assert said([batch]) == [line]
    assert batch.actions == (action,)


@pytest.mark.parametrize("what", SINGLE)
def test_without_a_name_the_cluster_is_left_to_slurm(what: str) -> None:
    action, line = SINGLE[what]
    assert said([LOCAL.single(action)]) == [line.replace(" cluster=c1", "").replace(" --clusters=c1", "")]


BATCHES: dict[str, tuple[list[ClusterAction], list[str]]] = {
    "nothing": ([], []),
    "accounts with the same parent and texts": (
        [account("a"), account("b")],
        ["sa add account name=a,b cluster=c1 parent=p description=D organization=O"],
    ),
    "accounts with other texts": (
        [account("a"), account("b", description="E")],
        [
            "sa add account name=a cluster=c1 parent=p description=D organization=O",
            "sa add account name=b cluster=c1 parent=p description=E organization=O",
        ],
    ),
    "parents before children, level by level": (
        [account("a", "b"), account("b", "c"), account("c", "root"), account("d", "root")],
        [
            "sa add account name=c,d cluster=c1 parent=root description=D organization=O",
            "sa add account name=b cluster=c1 parent=c description=D organization=O",
            "sa add account name=a cluster=c1 parent=b description=D organization=O",
        ],
    ),
    "equal actions once": (
        [account("a"), account("a")],
        ["sa add account name=a cluster=c1 parent=p description=D organization=O"],
    ),
    "limits with the same values": (
        [limits("a", cpu=1), limits("b", cpu=2), limits("d", cpu=1)],
        [
            "sa modify account where name=a,d cluster=c1 set GrpTRESMins=cpu=1",
            "sa modify account where name=b cluster=c1 set GrpTRESMins=cpu=2",
        ],
    ),
    "members of one account": (
        [join("a", "v"), join("a", "u")],
        ["sa add user name=u,v account=a cluster=c1 fairshare=parent"],
    ),
    "the same members in several accounts": (
        [join("a", "u"), join("a", "v"), join("b", "v"), join("b", "u")],
        ["sa add user name=u,v account=a,b cluster=c1 fairshare=parent"],
    ),
    "other members in another account are never mixed": (
        [join("a", "u"), join("a", "v"), join("b", "u")],
        [
            "sa add user name=u,v account=a cluster=c1 fairshare=parent",
            "sa add user name=u account=b cluster=c1 fairshare=parent",
        ],
    ),
    "members with other options": (
        [join("a", "u"), join("a", "v", partitions=("gpu",)), join("b", "u", default_account="b")],
        [
            "sa add user name=u account=a cluster=c1 fairshare=parent",
            "sa add user name=v account=a cluster=c1 partitions=gpu fairshare=parent",
            "sa add user name=u account=b cluster=c1 DefaultAccount=b fairshare=parent",
        ],
    ),
    "default accounts by their new one": (
        [move("u", "a", "x"), move("v", "b", "x"), move("w", "a", "y")],
        [
            "sa modify user where name=u,v cluster=c1 set DefaultAccount=x",
            "sa modify user where name=w cluster=c1 set DefaultAccount=y",
        ],
    ),
    "blocks": (
        [BlockSubmission(account="a"), BlockSubmission(account="b")],
        ["sa modify account where name=a,b cluster=c1 set GrpSubmitJobs=0"],
    ),
    "scancel takes one account at a time": (
        [CancelJobs(account="a"), CancelJobs(account="b")],
        ["sc --clusters=c1 --account=a", "sc --clusters=c1 --account=b"],
    ),
    "leavers with another account before those without, never together": (
        [leave("a", "u", default=True), leave("a", "v"), leave("b", "u", default=True), leave("b", "v")],
        [
            "sa remove user where name=v account=a,b cluster=c1",
            "sa remove user where name=u account=a,b cluster=c1",
        ],
    ),
    "leavers of accounts with other members": (
        [leave("a", "u"), leave("a", "v"), leave("b", "u")],
        [
            "sa remove user where name=u account=a,b cluster=c1",
            "sa remove user where name=v account=a cluster=c1",
        ],
    ),
    "leavers of the same accounts, each from a default of their own": (
        [
            *(leave(a, u, default=(a, u) in {("a", "u"), ("b", "v")}) for a in "abc" for u in "uv"),
        ],
        [
            "sa remove user where name=v account=a,c cluster=c1",
            "sa remove user where name=u account=b,c cluster=c1",
            "sa remove user where name=u account=a cluster=c1",
            "sa remove user where name=v account=b cluster=c1",
        ],
    ),
    "leaves before parents": (
        [delete("p", "c"), delete("a", "p"), delete("b", "p"), delete("x", "y")],
        ["sa remove account where name=a,b cluster=c1", "sa remove account where name=p,x cluster=c1"],
    ),
    "QoS of several accounts": (
        [CreateQos(account="a"), CreateQos(account="b"), DeleteQos(account="d"), DeleteQos(account="e")],
        [
            "sa add qos name=a {description=waldur-site-cluster: account a on c1}",
            "sa add qos name=b {description=waldur-site-cluster: account b on c1}",
            "sa remove qos where name=d,e",
        ],
    ),
}


@pytest.mark.parametrize("what", BATCHES)
def test_batches(what: str) -> None:
    wanted, lines = BATCHES[what]
    batches = COMMANDS.batches(wanted)
    assert said(batches) == lines
    assert sorted(a.render() for b in batches for a in b.actions) == sorted(
        a.render() for a in dict.fromkeys(wanted)
    )


EVERY_KIND = [action for action, _ in SINGLE.values()]
IN_ORDER = [
    "add account", "modify account", "add qos", "modify qos", "modify account", "modify account", "add user",
    *["modify user"] * 4, "modify account", "modify user", "modify account", "modify user",
    "--clusters=c1 --account=a", "remove user", "remove user", "remove account", "remove qos",
]  # fmt: skip


def test_builders_come_first_and_removals_last_whatever_the_order_of_the_plan() -> None:
    kinds = {type(action): action for action in EVERY_KIND}
    for turned in (list(kinds.values()), list(reversed(kinds.values()))):
        assert [" ".join(batch.argv[:2]) for batch in COMMANDS.batches(turned)] == IN_ORDER


REMOVAL = (leave("a", "u"), delete("a"), BlockSubmission(account="a"), CancelJobs(account="a"))


@pytest.mark.parametrize("order", list(permutations(REMOVAL)))
def test_a_removal_goes_block_cancel_leave_delete(order: tuple[ClusterAction, ...]) -> None:
    kinds = [type(batch.actions[0]) for batch in COMMANDS.batches(order)]
    assert kinds == [BlockSubmission, CancelJobs, RemoveMember, DeleteAccount]


MANY = 2 * NAMES_AT_ONCE + 1
COUNTS: dict[str, tuple[list[ClusterAction], int]] = {
    "members of one account": ([join("a", f"u{n}") for n in range(MANY)], 3),
    "leavers of one account": ([leave("a", f"u{n}") for n in range(MANY)], 3),
    "default accounts": ([move(f"u{n}", "a", "b") for n in range(MANY)], 3),
    "limits": ([limits(f"a{n}", cpu=1) for n in range(MANY)], 3),
    "blocks": ([BlockSubmission(account=f"a{n}") for n in range(MANY)], 3),
    "accounts": ([account(f"a{n}") for n in range(MANY)], 3),
    "deletions": ([delete(f"a{n}") for n in range(MANY)], 3),
    "one member in many accounts": ([join(f"a{n}", "u") for n in range(100)], 1),
    "the same ten in ten accounts": ([join(f"a{n}", f"u{m}") for n in range(10) for m in range(10)], 1),
    "ten in one account, at 0.65 s each": ([join("a", f"u{m}") for m in range(10)], 1),
}


@pytest.mark.parametrize("what", COUNTS)
def test_commands_are_few_and_no_word_is_longer_than_the_kernel_allows(what: str) -> None:
    wanted, count = COUNTS[what]
    batches = COMMANDS.batches(wanted)
    assert len(batches) == count
    assert max(len(word) for batch in batches for word in batch.argv) < 128 * 1024
    assert sorted(a.render() for b in batches for a in b.actions) == sorted({a.render() for a in wanted})


def test_names_of_the_greatest_length_still_fit_in_one_word() -> None:
    (batch,) = COMMANDS.batches([join("a", f"{n:0>255}") for n in range(NAMES_AT_ONCE)])
    assert max(map(len, batch.argv)) < 128 * 1024


DANGEROUS = "x,root"
CARRIERS: dict[str, ClusterAction] = {
    "account": account(DANGEROUS),
    "parent": account("a", DANGEROUS),
    "moved account": MoveAccount(account=DANGEROUS, before="p", after="q"),
    "new parent": MoveAccount(account="a", before="p", after=DANGEROUS),
    "QoS": CreateQos(account=DANGEROUS),
    "QoS of an account": SetQos(account="a", after=(DANGEROUS,), default="q"),
    "default QoS": SetQos(account="a", after=("q",), default=DANGEROUS),
    "account of a QoS": SetQos(account=DANGEROUS, after=("q",), default="q"),
    "limited account": limits(DANGEROUS, cpu=1),
    "TRES": SetLimits(account="a", after=((DANGEROUS, 1),)),
    "member": join("a", DANGEROUS),
    "account of a member": join(DANGEROUS, "u"),
    "default account of a member": join("a", "u", default_account=DANGEROUS),
    "partition": join("a", "u", partitions=(DANGEROUS,)),
    "QoS of a member": join("a", "u", qos=(DANGEROUS,)),
    "default QoS of a member": join("a", "u", default_qos=DANGEROUS),
    "mover": move(DANGEROUS, "a", "b"),
    "new default account": move("u", "a", DANGEROUS),
    "blocked": BlockSubmission(account=DANGEROUS),
    "allowed": AllowSubmission(account=DANGEROUS),
    "cancelled": CancelJobs(account=DANGEROUS),
    "leaver": leave("a", DANGEROUS),
    "left account": leave(DANGEROUS, "u"),
    "deleted": delete(DANGEROUS),
    "deleted QoS": DeleteQos(account=DANGEROUS),
}


@pytest.mark.parametrize("place", CARRIERS)
def test_a_dangerous_name_stops_before_any_command_wherever_it_stands(place: str) -> None:
    with pytest.raises(PlanRefused, match=r"name 'x,root' cannot be used in SLURM"):
        COMMANDS.single(CARRIERS[place])


EMPTY = [
    account(""), limits("", cpu=1), join("", "u"), join("a", ""), move("", "a", "b"), BlockSubmission(account=""),
    AllowSubmission(account=""), CancelJobs(account=""), leave("", "u"), leave("a", ""), delete(""),
    CreateQos(account=""), DeleteQos(account=""), SetQos(account="", after=("q",), default="q"),
]  # fmt: skip


@pytest.mark.parametrize("action", EMPTY, ids=lambda action: action.verb)
def test_an_empty_name_never_reaches_a_command(action: ClusterAction) -> None:
    """`remove user where name= account=a` means every user of the account (22.05)."""
    with pytest.raises(PlanRefused, match="it is empty"):
        COMMANDS.single(action)


class Unheard(ClusterAction):
    """An action that SLURM has no command for."""

    verb = "do the unheard-of"


def test_an_action_without_a_command_is_named() -> None:
    with pytest.raises(BackendError, match="SLURM has no command for do the unheard-of"):
        COMMANDS.batches([Unheard()])
