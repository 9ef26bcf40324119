# SPDX-License-Identifier: MIT
"""Facts about the real sacctmgr of all generations that the backend is built on; docs/slurm.md describes them.

Those that differ by generation stand in `tests/backends/slurm/facts.py`.
"""

from pathlib import Path

import pytest

from rig.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.every_slurm

# Columns of the accounting tables that change when anything is added: clocks and the tree's numbering.
MOVING_COLUMNS = {"mod_time", "creation_time", "lft", "rgt"}
TABLES = ("test_assoc_table", "user_table", "acct_table", "qos_table", "acct_coord_table", "cluster_table")
KEYS = ("acct", "user", "partition", "name")

NEW_THINGS = """\
Cluster - 'test'
Parent - 'root'
Account - 'customer2':Description='Customer Two':Organization='customer2'
Parent - 'customer1'
Account - 'project2':Description='Project Two':Organization='project2'
Parent - 'project2'
Account - 'alloc3':Description='Third':Organization='project2':GrpTRESMins=cpu=600,mem=2048,gres/gpu=6
Parent - 'alloc3'
User - 'ann':Fairshare=parent
User - 'eve':Fairshare=parent
User - 'root':Fairshare=parent
Parent - 'alloc2'
User - 'ann':Fairshare=parent
"""

Rows = dict[tuple[str, ...], dict[str, str]]


def stored(slurm: SlurmCluster) -> Rows:
    """Every living row of the accounting tables by table and natural key."""
    found: Rows = {}
    for table in TABLES:
        columns = slurm.sql(f"SHOW COLUMNS FROM {table}").splitlines()
        names = [line.split("\t")[0] for line in columns]
        for line in slurm.sql(f"SELECT * FROM {table} WHERE deleted=0").splitlines():
            row = dict(zip(names, line.split("\t"), strict=True))
            kept = {name: value for name, value in row.items() if name not in MOVING_COLUMNS}
            found[(table, *(row[key] for key in KEYS if key in row))] = kept
    return found


def changes(before: Rows, after: Rows) -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """Keys of added rows, and keys of rows that were changed or removed."""
    return set(after) - set(before), {key for key in before if after.get(key) != before[key]}


def load(slurm: SlurmCluster, text: str, answer: str | None = None) -> tuple[int, str, str]:
    """Load a file, committing at once or after the given answer to sacctmgr's question."""
    path = Path(slurm.folder) / "load.cfg"
    path.write_text(text)
    flags = ("-i",) if answer is None else ()
    done = slurm.run("sacctmgr", *flags, "-nP", "load", str(path), stdin=answer or "")
    return done.returncode, done.stdout, done.stderr


def default_accounts(slurm: SlurmCluster) -> dict[str, str]:
    rows = slurm.ask("sacctmgr", "-inP", "list", "user", "format=user,defaultaccount").splitlines()
    return {row.split("|")[0]: row.split("|")[1] for row in rows}


def rich_site(slurm: SlurmCluster) -> None:
    """A site in which everything that a load could disturb is set to something unusual."""
    slurm.change(
        "add qos name=fast",
        "add account name=customer1 cluster=test parent=root description=One GrpTRESMins=cpu=99",
        "add account name=project1 cluster=test parent=customer1 fairshare=7",
        "add account name=alloc1 cluster=test parent=project1 GrpSubmitJobs=9 MaxTRESMins=cpu=5 MaxJobs=3",
        "add account name=alloc2 cluster=test parent=project1 fairshare=parent",
        "modify account where name=alloc1 cluster=test set qos=normal,fast defaultqos=fast",
        "add user name=ann,bob cluster=test account=alloc1 fairshare=4",
        "add user name=bob cluster=test account=alloc2 DefaultAccount=alloc2 partition=main",
        "add user name=tom cluster=test account=alloc1 adminlevel=operator qoslevel=normal defaultqos=normal maxjobs=2",
        "add coordinator account=project1 name=tom",
        "modify user where name=ann account=alloc1 cluster=test set MaxTRESMins=cpu=3",
    )


def test_load_of_new_things_changes_nothing_else(slurm: SlurmCluster) -> None:
    rich_site(slurm)
    before, defaults = stored(slurm), default_accounts(slurm)
    code, out, err = load(slurm, NEW_THINGS)
    assert code == 0
    assert "Done adding cluster" in err
    assert not [line for line in out.splitlines() if line.startswith(" ")]
    added, changed = changes(before, stored(slurm))
    assert changed == set()
    assert {key[1:] for key in added if key[0] == "test_assoc_table"} == {
        *(("customer2", "", ""), ("project2", "", ""), ("alloc3", "", ""), ("alloc2", "ann", "")),
        *(("alloc3", user, "") for user in ("ann", "eve", "root")),
    }
    assert default_accounts(slurm) == {**defaults, "eve": "alloc3"}
    slurm.ask("sbatch", "-A", "alloc3", "--wrap", "true")

    code, out, _ = load(slurm, NEW_THINGS)
    assert (code, out.splitlines()[-1]) == (0, " Nothing new added.")


def test_load_prints_changes_before_its_question_and_discards_them(slurm: SlurmCluster) -> None:
    rich_site(slurm)
    before = stored(slurm)
    text = (
        "Cluster - 'test'\nParent - 'customer1'\nAccount - 'alloc1':Fairshare=3\n"
        "Account - 'alloc9'\nParent - 'alloc2'\nUser - 'ann':DefaultAccount='alloc2'\n"
    )
    code, out, _ = load(slurm, text, answer="n\n")
    notes = [" ".join(line.split()) for line in out.splitlines() if line.startswith(" ")]
    assert "Changed Parent for Account alloc1 project1 -> customer1" in notes
    assert "Changed fairshare for Account alloc1 1 -> 3" in notes
    assert "Changed Default Account for User ann alloc1 -> alloc2" in notes
    assert (code, stored(slurm)) == (0, before)


def test_load_with_an_unknown_parent_keeps_what_stood_before_it(slurm: SlurmCluster) -> None:
    text = "Cluster - 'test'\nParent - 'root'\nAccount - 'first'\nParent - 'nosuch'\nAccount - 'second'\n"
    code, _, err = load(slurm, text, answer="n\n")
    assert (code, "You need to add this parent (nosuch)" in err) == (1, True)
    assert "first" not in slurm.ask("sacctmgr", "-inP", "list", "account", "format=account")
    assert load(slurm, text)[0] == 1
    assert "first" in slurm.ask("sacctmgr", "-inP", "list", "account", "format=account")


def test_load_for_an_unknown_cluster_creates_the_cluster(slurm: SlurmCluster) -> None:
    assert load(slurm, "Cluster - 'typo'\nParent - 'root'\nAccount - 'lost'\n")[0] == 0
    assert slurm.ask("sacctmgr", "-inP", "list", "cluster", "format=cluster").split() == ["test", "typo"]


def test_accounts_and_members_go_in_three_writes(slurm: SlurmCluster) -> None:
    slurm.change(
        "add account name=alloc1,alloc2,alloc3 cluster=test",
        "add user name=ann,bob cluster=test account=alloc1,alloc3 DefaultAccount=alloc1",
        "add user name=sue,tom cluster=test account=alloc1",
        "add user name=zoe cluster=test account=alloc2",
        "add user name=kim cluster=test account=alloc1,alloc3 DefaultAccount=alloc3",
    )
    refused = slurm.run("sacctmgr", "-i", "remove", "account", "where", "name=alloc1", "cluster=test")
    assert "You can not remove the default account of a user" in refused.stderr
    slurm.change(
        "modify user where name=ann,bob cluster=test set DefaultAccount=alloc3",
        "remove user where name=sue,tom,zoe account=alloc1,alloc2 cluster=test",
        "remove account where name=alloc1,alloc2 cluster=test",
    )
    left = slurm.ask("sacctmgr", "-inP", "show", "association", "format=account,user").split()
    assert sorted(left) == ["alloc3|", "alloc3|ann", "alloc3|bob", "alloc3|kim", "root|", "root|root"]
    assert default_accounts(slurm) == {"ann": "alloc3", "bob": "alloc3", "kim": "alloc3", "root": "root"}


def test_scancel_ignores_a_list_of_accounts(slurm: SlurmCluster) -> None:
    slurm.change("add account name=alloc1,alloc2 cluster=test", "add user name=root account=alloc1,alloc2")
    for account in ("alloc1", "alloc2"):
        slurm.ask("sbatch", "-A", account, "-t", "60", "--wrap", "sleep 900")
    assert slurm.run("scancel", "-A", "alloc1,alloc2").returncode == 0
    assert len(slurm.ask("squeue", "-h", "-A", "alloc1,alloc2", "-t", "PD,R", "-o", "%i").split()) == 2
    slurm.ask("scancel", "-A", "alloc1")
    assert len(slurm.ask("squeue", "-h", "-A", "alloc1,alloc2", "-t", "PD,R", "-o", "%i").split()) == 1


def test_own_limits_are_distinguished_from_inherited_ones(slurm: SlurmCluster) -> None:
    slurm.change("add account name=top cluster=test MaxTRESMins=cpu=5", "add account name=sub parent=top")
    columns = ("show", "association", "where", "account=sub", "format=maxtresmins,qos")
    assert slurm.ask("sacctmgr", "-inP", *columns).strip() == "cpu=5|normal"
    assert slurm.ask("sacctmgr", "-inP", *columns, "WOPLimits").strip() == "|"
