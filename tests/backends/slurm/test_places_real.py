# SPDX-License-Identifier: MIT
"""Facts of the real SLURM on which a fast read of the tree stands: parents follow from places, default associations the
default accounts, whatever was done to the tree; and what the table of transactions does not show.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.slurm import parse
from backends.slurm.parse import Tree
from rig.slurm_cluster import SlurmCluster
from tests.rig.test_slurm_facts import load

TREE = """\
Cluster - 'test'
Parent - 'root'
Account - 'cust1':GrpTRESMins=cpu=5
Account - 'cust2'
Parent - 'cust1'
Account - 'proj1'
Account - 'proj2'
User - 'kim'
Parent - 'proj1'
Account - 'alloc1'
Account - 'alloc2'
Parent - 'alloc1'
User - 'ann':Fairshare=parent
User - 'bob':Fairshare=parent
Parent - 'alloc2'
User - 'ann':Fairshare=parent
"""
# Each changes what a place or a default association is: commands of sacctmgr.
CHANGES = (
    "modify account proj1 set parent=cust2",
    "add user eve account=alloc2 partition=main",
    "add user eve account=alloc2 partition=gpu",
    "modify user ann set defaultaccount=alloc2",
    "remove user where name=bob account=alloc1",
    "add account late parent=proj2",
    "modify account cust2 set parent=proj2",
    "remove account late",
    "add cluster other",
    "add account elsewhere cluster=other",
    "remove cluster other",
)


def by_parents(slurm: SlurmCluster) -> Tree:
    columns = f"format={','.join(parse.ASSOCIATION_COLUMNS)}"
    return parse.associations(
        slurm.ask("sacctmgr", "-inP", "show", "assoc", "cluster=test", columns, "WOPLimits")
    )


def by_places(slurm: SlurmCluster) -> Tree:
    columns = parse.LINEAGE_COLUMNS if slurm.root else parse.PLACED_COLUMNS
    words = ("cluster=test", f"format={','.join(columns)}", "WOPInfo")
    return parse.associations(slurm.ask("sacctmgr", "-inP", "show", "assoc", *words), columns)


def defaults(slurm: SlurmCluster) -> dict[str, str]:
    columns = f"format={','.join(parse.DEFAULT_COLUMNS)}"
    listed = slurm.ask(
        "sacctmgr", "-inP", "show", "assoc", "cluster=test", columns, "OnlyDefaults", "WOPInfo"
    )
    return parse.default_associations(listed)


def users(slurm: SlurmCluster) -> dict[str, str]:
    words = ("show", "user", "cluster=test", "format=user,defaultaccount")
    listed = parse.default_accounts(slurm.ask("sacctmgr", "-inP", *words))
    return {user: account for user, account in listed.items() if account}


@pytest.mark.every_slurm
def test_places_and_default_associations_show_what_parents_and_users_do(slurm: SlurmCluster) -> None:
    assert load(slurm, TREE)[0] == 0
    assert by_places(slurm).accounts["alloc1"].parent == "proj1"
    for change in CHANGES:
        slurm.change(change)
        assert by_places(slurm) == by_parents(slurm), change
        assert defaults(slurm) == users(slurm), change
    assert by_places(slurm).accounts["proj1"].parent == "cust2"
    assert defaults(slurm)["ann"] == "alloc2"


# What is damaged as after a lost write, and what the read says of it: of places, which `slurmdbd -R` makes anew, and of
# lineages, which there are from 23.11 on.
DAMAGED_PLACE = "rgt = rgt + 1", "rgt = rgt - 1", "is not within two"
DAMAGED_LINEAGE = "lineage = '/lost/two/'", "lineage = '/two/'", "its lineage does not lead to root by lost"


@pytest.mark.every_slurm
def test_no_parents_follow_from_a_damaged_tree(slurm: SlurmCluster) -> None:
    slurm.change("add account one", "add account two")
    assert by_places(slurm) == by_parents(slurm)
    damage, repair, said = DAMAGED_LINEAGE if slurm.root else DAMAGED_PLACE
    slurm.sql(f"UPDATE test_assoc_table SET {damage} WHERE acct = 'two'")
    try:
        with pytest.raises(parse.Misplaced, match=said):
            by_places(slurm)
        assert by_parents(slurm).accounts["two"].parent == "root"
    finally:
        slurm.sql(f"UPDATE test_assoc_table SET {repair} WHERE acct = 'two'")
    assert by_places(slurm) == by_parents(slurm)


@pytest.mark.every_slurm
def test_the_move_of_an_account_is_no_transaction(slurm: SlurmCluster) -> None:
    """So what changed since a moment cannot be read from the transactions alone."""

    def transactions() -> list[str]:
        return slurm.ask("sacctmgr", "-inP", "show", "transactions", "format=id,action").splitlines()

    slurm.change("add account one", "add account two")
    before, tree = transactions(), by_places(slurm)
    slurm.change("modify account two set parent=one")
    assert transactions() == before
    moved = replace(tree.accounts["two"], parent="one")
    assert by_places(slurm).accounts == {**tree.accounts, "two": moved}
    slurm.change("modify account two set fairshare=2")
    assert len(transactions()) == len(before) + 1
