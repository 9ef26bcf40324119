# SPDX-License-Identifier: MIT
"""What the real SLURM does unexpectedly, and what we do about it.

What sacctmgr itself makes of it stands in `facts`, generation by generation. Our backend does the same on all of them:
how each action ends, and what appeared on the cluster and what vanished.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.core.actions import (
    AllowSubmission,
    BlockSubmission,
    DeleteAccount,
    DeleteQos,
    MoveAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
)
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, ParseError
from agent.plan import accounts
from backends.base import Scope
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from tests.backends.conftest import Connect
from tests.backends.slurm.dangers import Row, World, delete, join, limit, new, qos, sacctmgr

pytestmark = pytest.mark.every_slurm


@pytest.fixture(scope="module")
def world(emptied_slurm: SlurmCluster, on_slurm: Connect) -> World:
    return World(emptied_slurm, on_slurm)


FAILED, OK, PLAN, FULL = "CommandFailed", "ok", "PlanRefused", "NotEmpty"
BIG = 2**63 - 1

ROWS: dict[str, Row] = {
    # Adding
    "an account that exists": Row((new("top", "root"),), (OK,)),
    "an account that stands elsewhere is not moved": Row((new("home", "root"),), (OK,)),
    "an unknown parent: neither the account nor anything in it": Row(
        (new("lost", "nosuch"), join("lost", "u1", default_account="root"), limit("lost", cpu=1)),
        (FAILED, FAILED, FAILED),
    ),
    "a record without an association here is no account, and becomes one": Row(
        (new("ghost"),),
        (OK,),
        ("+ghost below top",),
        ("remove account where name=ghost cluster=test",),
    ),
    "range expansion": Row(
        (new("r[1-2]"), join("home", "v[1-3]"), DeleteAccount(account="r[1-2]", parent="top")),
        (PLAN, PLAN, PLAN),
    ),
    "comma lists": Row(
        (new("r1,r2"), delete("r1,r2"), join("home", "a,b"), join("home,full", "x"), limit("r1,r2", cpu=1)),
        (PLAN, PLAN, PLAN, PLAN, PLAN),
    ),
    "options, quotes, blanks, dashes, nothing": Row(
        (new("a=b"), new('a"b'), new("a b"), new("-x"), new("--help"), new(""), join("home", ""), limit("", cpu=1)),
        (PLAN,) * 8,
    ),
    "words of the grammar": Row(
        (new("set"), delete("where"), limit("and", cpu=1), join("format", "x"), join("home", "set")),
        (PLAN,) * 5,
    ),
    "capital letters are stored as small ones": Row(
        (new("Capital"), join("home", "Ann")),
        (PLAN, PLAN),
    ),
    "names of digits, of the greatest length, and with an at sign": Row(
        (new("123"), new("n" * 255), join("123", "007"), join("123", "x.y@z")),
        (OK, OK, OK, OK),
        (
            "+007 defaults to 123",
            "+007 in 123",
            "+123 below top",
            f"+{'n' * 255} below top",
            "+x.y@z defaults to 123",
            "+x.y@z in 123",
        ),
    ),
    "a description with a line break, a column and quotes": Row(
        (new("texts", description="one\ntwo | \"three\" 'four' [1-2],a=b \\ ünï; $(id)"),),
        (OK,),
        ("+texts below top",),
    ),
    # Members
    "users whom this machine does not know": Row(
        (join("home", "nounix"),), (OK,), ("+nounix defaults to home", "+nounix in home")
    ),
    "a member who is one already, among new ones": Row(
        (join("home", "ann"), join("home", "abe")), (OK, OK), ("+abe defaults to home", "+abe in home")
    ),
    "DefaultAccount=root puts people into root": Row(
        (join("home", "u2", default_account="root"),),
        (OK,),
        ("+u2 defaults to root", "+u2 in home", "+u2 in root"),
    ),
    "DefaultAccount=root, even when the account itself is missing": Row(
        (join("gone", "u3", default_account="root"),), (FAILED,), ("+u3 defaults to root", "+u3 in root")
    ),
    "DefaultAccount= changes the default of people who have one": Row(
        (join("limited", "u2", default_account="limited"),),
        (OK,),
        ("+u2 defaults to limited", "+u2 in limited", "-u2 defaults to root"),
    ),
    "a member of a missing account": Row((join("gone", "u4"),), (FAILED,)),
    "an unknown QoS makes no member": Row((join("home", "u4", qos=("nosuch",), default_qos="nosuch"),), (FAILED,)),
    "a partition is not looked up": Row(
        (join("home", "u5", partitions=("nopart",)),), (OK,), ("+u5 defaults to home", "+u5 in home on nopart")
    ),
    "a default account without an association": Row(
        (MoveDefaultAccount(account="special", user="ann", before="home"),), (FAILED,)
    ),
    # Limits
    "a fraction is cut at its point, with 0": Row(
        (limit("limited", cpu=60),),
        (OK,),
        ("+limited cpu=60", "-limited cpu=1"),
        ("modify account where name=limited set GrpTRESMins=cpu=1.5",),
    ),
    "a number that is too great removes the limit, with 0; our greatest is kept": Row(
        (limit("limited", cpu=BIG),),
        (OK,),
        (f"+limited cpu={BIG}",),
        ("modify account where name=limited set GrpTRESMins=cpu=99999999999999999999",),
    ),
    "-1 removes the limit that is named and no other": Row(
        (limit("limited", cpu=60),),
        (OK,),
        ("+limited cpu=60",),
        ("modify account where name=limited set GrpTRESMins=cpu=-1",),
    ),
    "zero is a limit, and the others stay": Row(
        (limit("limited", cpu=0),), (OK,), ("+limited cpu=0", "-limited cpu=60")
    ),
    "memory beyond petabytes can still be read": Row(
        (limit("limited", mem=2**40),), (OK,), (f"+limited mem={2**40}", "-limited mem=2048")
    ),
    "memory comes back as it went, whatever its unit": Row(
        (limit("limited", mem=3 * 1024**2 + 1), limit("special", mem=1_536_000)),
        (OK, OK),
        (f"+limited mem={3 * 1024**2 + 1}", "+special mem=1536000", f"-limited mem={2**40}"),
    ),
    "an unknown TRES refuses the known one next to it": Row(
        (SetLimits(account="limited", after=(("bogus", 1), ("cpu", 5))),), (FAILED,)
    ),
    "a TRES that is not tracked": Row((SetLimits(account="limited", after=(("gres/gpu:a100", 1),)),), (FAILED,)),
    "a missing account answers like one that is as desired": Row(
        (limit("gone", cpu=1), BlockSubmission(account="gone"), AllowSubmission(account="gone")), (OK, OK, OK)
    ),
    # QoS
    "a QoS list is taken with its default": Row(
        (qos("special", "normal", default="normal"),),
        (OK,),
        ("+special QoS normal default normal", "-special QoS fast,normal default fast"),
    ),
    "an unknown QoS on an account": Row((qos("special", "nosuch", default="nosuch"),), (FAILED,)),
    "a QoS that is a user's default stays": Row(
        (qos("special", "slow", default="slow"), DeleteQos(account="slow")),
        (OK, "DoneInPart"),
        ("+special QoS slow default slow", "-special QoS normal default normal"),
    ),
    "a QoS on a missing account answers as if there were nothing to do": Row(
        (qos("gone", "fast", default="fast"),), (OK,)
    ),
    # Moving and removing
    "an unknown new parent, the present one, and itself": Row(
        (MoveAccount(account="home", before="top", after="nosuch"),
            MoveAccount(account="home", before="top", after="top"),
            MoveAccount(account="full", before="top", after="full"),),
        ("BackendError", OK, "BackendError"),
    ),
    "children would go along": Row((delete("kids"), delete("top", "root")), (FULL, FULL)),
    "people who default to it would refuse it": Row(
        (delete("full"),),
        (FULL,),
    ),
    "people who default elsewhere would go along": Row(
        (delete("limited"),),
        (FULL,),
        (),
        ("modify user where name=u2 cluster=test set DefaultAccount=home",),
    ),
    "what is missing": Row(
        (delete("gone"), RemoveMember(account="gone", user="ann"), RemoveMember(account="full", user="nobody")),
        (OK, OK, OK),
    ),
    "the last association takes the user along": Row(
        (RemoveMember(account="full", user="amy"), RemoveMember(account="full", user="bob", is_default=True)),
        (OK, OK),
        ("-amy in full", "-bob defaults to full", "-bob in full"),
    ),
    "then the account can go": Row((delete("full"),), (OK,), ("-full below top",)),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_danger(world: World, what: str) -> None:
    row = ROWS[what]
    for command in row.before:
        assert sacctmgr(world.slurm, command)[0] == 0
    if row.before:
        world.changes()
    writes = world.backend.executed["write"]
    assert tuple(world.errors(*row.actions)) == row.ends
    if set(row.ends) == {PLAN}:
        assert world.backend.executed["write"] == writes
    else:
        assert tuple(world.changes()) == row.changes


def test_a_text_for_people_is_one_row_of_its_own_columns(world: World) -> None:
    rows = world.slurm.ask("sacctmgr", "-inP", "show", "account", "name=texts", "format=account,description")
    assert rows == "texts|one two three four 1-2 ,a=b ünï id\n"


def test_a_removal_goes_through_where_default_and_other_members_would_refuse_each_other(world: World) -> None:
    """kim defaults to it and has another account, lou has another default, sue has nothing else."""
    code, _, err = sacctmgr(world.slurm, "remove user where name=kim,lou,sue account=going cluster=test")
    assert (code, "You can not remove the default account of a user" in err) == (1, True)
    removal = accounts.removal("going", world.seen, default_account="root", reason="test")
    assert set(world.errors(*removal)) == {OK}
    assert world.changes() == [
        *("+kim defaults to home", "-going below top", "-kim defaults to going"),
        *("-kim in going", "-lou in going", "-sue defaults to going", "-sue in going"),
    ]


def test_active_jobs_are_ended_before_their_account_goes(world: World) -> None:
    slurm = world.slurm
    slurm.ask("sbatch", "-A", "jobs", "-t", "5", "--wrap", "sleep 300")
    wait_until("a running job", lambda: slurm.ask("squeue", "-h", "-A", "jobs", "-o", "%t").strip() == "R")
    assert world.errors(RemoveMember(account="jobs", user="root")) == ["JobsStillActive"]
    assert world.errors(BlockSubmission(account="jobs")) == [OK]
    blocked = slurm.run("sbatch", "-A", "jobs", "-t", "5", "--wrap", "true")
    assert (blocked.returncode, "AssocGrpSubmitJobsLimit" in blocked.stderr) == (1, True)
    assert world.errors(AllowSubmission(account="jobs")) == [OK]
    slurm.ask("sbatch", "-A", "jobs", "-t", "5", "--wrap", "sleep 300")
    assert world.changes() == []
    standing = world.backend.observe(Scope(jobs_of=frozenset({"jobs"}), parts=Scope().parts))
    assert standing.active_jobs == {"jobs": 2}
    removal = accounts.removal("jobs", standing, default_account="root", reason="test")
    assert set(world.errors(*removal)) == {OK}
    assert world.changes() == ["-jobs below top", "-root in jobs"]
    assert slurm.ask("squeue", "-h", "-A", "jobs", "-t", "PD,R", "-o", "%i") == ""


def test_several_writers_at_once_lose_nothing(world: World, on_slurm: Connect) -> None:
    """Six `add user` at once: all ended with 0, and 4 of 12 were stored. Ours wait for each other."""
    users = [f"writer{number}" for number in range(4)]
    with ThreadPoolExecutor(len(users)) as writers:
        outcomes = list(writers.map(lambda user: on_slurm().apply([join("home", user)]), users))
    assert all(outcome.done for several in outcomes for outcome in several)
    assert world.changes() == sorted(
        line for user in users for line in (f"+{user} defaults to home", f"+{user} in home")
    )


def test_an_outage_is_reported_for_every_action_and_nothing_is_taken_for_empty(world: World) -> None:
    world.slurm.stop_slurmdbd()
    try:
        kinds = world.errors(limit("home", cpu=1), join("home", "late"), delete("kid", "kids"))
        assert kinds == ["BackendUnavailable"] * 3
        asked: list[Callable[[], object]] = [world.backend.observe, world.backend.check]
        for ask in asked:
            with pytest.raises(BackendUnavailable, match="Check slurmdbd"):
                ask()
    finally:
        world.slurm.start_slurmdbd()
    assert world.changes() == []


def test_a_cluster_that_does_not_exist_is_not_empty_and_nothing_is_made_for_it(
    world: World, on_slurm: Connect
) -> None:
    typo = on_slurm(cluster_name="tset")
    with pytest.raises(ParseError, match="the root account is missing"):
        typo.observe()
    actions = [new("lost", "root"), *(join("lost", f"u{n}", partitions=(f"p{n}",)) for n in range(4))]
    outcomes = typo.apply(actions)
    assert {type(o.error) for o in outcomes} == {CommandFailed}
    assert typo.check().problems[0] == "cluster_name is 'tset'; slurmdbd knows test"
    assert world.changes() == []


def test_accounts_and_defaults_of_another_cluster_are_not_ours(world: World, on_slurm: Connect) -> None:
    """Accounts are records of all clusters; associations and default accounts are each cluster's own."""
    for command in (
        "add cluster other",
        "add account name=foreign,home cluster=other",
        "add user name=ann,far account=foreign cluster=other",
    ):
        assert sacctmgr(world.slurm, command)[0] == 0
    try:
        assert world.changes() == []
        other = on_slurm(cluster_name="other").observe()
        assert set(other.accounts) == {"root", "foreign", "home"}
        assert other.default_accounts == {"root": "root", "ann": "foreign", "far": "foreign"}
        with pytest.raises(BackendError, match="knows the clusters other, test: set backend_settings"):
            on_slurm(cluster_name=None).observe()
    finally:
        assert sacctmgr(world.slurm, "remove cluster where name=other")[0] == 0
