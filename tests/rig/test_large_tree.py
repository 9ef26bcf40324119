# SPDX-License-Identifier: MIT
"""A tree that is put into the database is what sacctmgr would have made, and goes again."""

from __future__ import annotations

from rig import large_tree
from rig.large_tree import Account
from rig.slurm_cluster import SlurmCluster

COLUMNS = "format=account,parentname,user,share,defaultqos,grptresmins"


def test_a_seeded_tree_is_what_sacctmgr_makes(slurm: SlurmCluster) -> None:
    slurm.ask("sacctmgr", "-i", "add", "account", "top", "description=the top", "organization=org")
    slurm.change(
        "add account a parent=top description=a organization=org",
        "modify account where name=a set GrpTRESMins=cpu=600",
        "add user anna,bert account=a fairshare=parent",
    )
    by_sacctmgr = tree(slurm)
    slurm.reset()
    empty = tree(slurm)
    large_tree.add(
        slurm,
        [
            Account("top", description="the top", organization="org"),
            Account("a", "top", ["anna", "bert"], "a", "org", {"cpu": 600}),
            *large_tree.others(22),
        ],
    )
    seeded = tree(slurm)
    assert [line for line in seeded if "other" not in line] == by_sacctmgr
    assert len([line for line in seeded if "other" in line]) == 22 + 20 + 2
    slurm.change(
        "add user anna account=other1", "remove user where name=o0_1", "remove account where name=other0"
    )
    large_tree.clear(slurm)
    assert tree(slurm) == empty


def tree(slurm: SlurmCluster) -> list[str]:
    """Associations, default accounts and accounts, sorted."""
    associations = slurm.ask("sacctmgr", "-nP", "show", "assoc", COLUMNS, "WOPLimits")
    users = slurm.ask("sacctmgr", "-nP", "show", "user", "format=user,defaultaccount")
    accounts = slurm.ask("sacctmgr", "-nP", "show", "account", "format=account,descr,org")
    known = slurm.ask("scontrol", "-o", "show", "assoc_mgr", "flags=assoc")
    assert known.count("UserName=") == len(associations.splitlines())
    return sorted([*associations.splitlines(), *users.splitlines(), *accounts.splitlines()])
