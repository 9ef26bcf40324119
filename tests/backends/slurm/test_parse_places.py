# SPDX-License-Identifier: MIT
"""Parents that follow from where the rows of a tree are: from places, or from lineages."""

import pytest

from agent.core.associations import Association
from backends.slurm import parse

PLACED = """\
test|a|ann||||||||||4|5
test|b|||||||||||3|8
test|a||||cpu=60,mem=2G|5|normal|||||2|9
test|b|bob||||||||||6|7
test|root||||||normal|||||1|12
test|root|root||||||||||10|11
"""


def test_parents_follow_from_places_in_any_order_of_the_rows() -> None:
    lines = PLACED.replace("test|a|ann||||||||||4|5", "test|b|ann||||||||||4|5").splitlines()
    tree = parse.associations(lines, parse.PLACED_COLUMNS)
    assert {name: account.parent for name, account in tree.accounts.items()} == {
        "root": None,
        "a": "root",
        "b": "a",
    }
    assert parse.associations(reversed(lines), parse.PLACED_COLUMNS) == tree
    assert tree.accounts["a"].limits == {"cpu": 60, "mem": 2048}
    assert tree.associations == {
        Association("b", "ann"),
        Association("b", "bob"),
        Association("root", "root"),
    }


MISPLACED = {
    "an account across the end of another": ("test|b|||||||||||3|8", "test|b|||||||||||3|10"),
    "a user out of its account": ("6|7", "9|10"),
    "two in one place": ("3|8", "2|9"),
    "a second top": ("2|9", "13|14"),
    "an end before the beginning": ("3|8", "8|3"),
    "no place": ("3|8", "|"),
    "no number": ("3|8", "three|8"),
    "no number that a database keeps": ("3|8", f"3|{'9' * 19}"),
    "a place below zero": ("1|12", "-1|12"),
}


@pytest.mark.parametrize("what", MISPLACED)
def test_no_parents_follow_from_places_that_do_not_nest(what: str) -> None:
    good = PLACED.replace("test|a|ann", "test|b|ann")
    assert parse.associations(good, parse.PLACED_COLUMNS)
    with pytest.raises(parse.Misplaced):
        parse.associations(good.replace(*MISPLACED[what]), parse.PLACED_COLUMNS)


LINEAGE = """\
test|a|ann|main|||||||||/b/a/0-ann/main/
test|a||||cpu=60,mem=2G|5|normal|||||/b/a/
test|b|bob||||||||||/b/0-bob/
test|b|||||||||||/b/
test|root||||||normal|||||/
test|root|root||||||||||/0-root/
"""


@pytest.mark.parametrize("of_root", ["/", ""])
def test_parents_follow_from_lineages_in_any_order_of_the_rows(of_root: str) -> None:
    lines = LINEAGE.replace("normal|||||/\n", f"normal|||||{of_root}\n").splitlines()
    tree = parse.associations(lines, parse.LINEAGE_COLUMNS)
    parents = {name: account.parent for name, account in tree.accounts.items()}
    assert parents == {"root": None, "b": "root", "a": "b"}
    assert parse.associations(reversed(lines), parse.LINEAGE_COLUMNS) == tree
    assert tree.accounts["a"].limits == {"cpu": 60, "mem": 2048}
    assert Association("a", "ann", "main") in tree.associations


def test_of_a_lineage_the_last_account_counts() -> None:
    """As 24.11 leaves it to the accounts below one that was moved."""
    moved = LINEAGE.replace("|/b/a/\n", "|/c/d/b/a/\n").replace("/b/a/0-ann", "/e/b/a/0-ann")
    assert parse.associations(moved, parse.LINEAGE_COLUMNS) == parse.associations(
        LINEAGE, parse.LINEAGE_COLUMNS
    )


BAD_LINEAGES = {
    "an account below itself": ("|/b/a/\n", "|/a/a/\n"),
    "two accounts below each other": ("|/b/\n", "|/a/b/\n"),
    "a parent without a name": ("|/b/a/\n", "|//a/\n"),
    "a parent that is not listed": ("|/b/a/\n", "|/c/a/\n"),
    "an account that ends with another name": ("|/b/a/\n", "|/b/\n"),
    "a user out of its account": ("/b/0-bob/", "/0-bob/"),
    "another user": ("/b/0-bob/", "/b/0-ann/"),
    "another partition": ("0-ann/main/", "0-ann/"),
    "none": ("|/b/\n", "|\n"),
    "two of one account": ("test|b|bob||||||||||/b/0-bob/", "test|b|||||||||||/b/"),
}


@pytest.mark.parametrize("what", BAD_LINEAGES)
def test_no_parents_follow_from_lineages_that_contradict_each_other(what: str) -> None:
    assert LINEAGE.count(BAD_LINEAGES[what][0]) == 1
    with pytest.raises(parse.Misplaced):
        parse.associations(LINEAGE.replace(*BAD_LINEAGES[what]), parse.LINEAGE_COLUMNS)


def test_rows_of_two_clusters_are_no_contradiction() -> None:
    """Without `cluster_name` the clusters are counted, and the operator is asked for one."""
    tree = parse.associations(LINEAGE + LINEAGE.replace("test|", "other|"), parse.LINEAGE_COLUMNS)
    assert tree.clusters == {"test", "other"}


MARKED = "test|b|bob||||||||||/b/0-bob/", "test|b|bob||||0||||0|parent|/b/0-bob/"
OTHERS = {
    "another limit of all jobs": ("|||0||||0|parent|", "|||5||||0|parent|"),
    "no limit of all jobs": ("|||0||||0|parent|", "|||||||0|parent|"),
    "another limit of jobs": ("||0|parent|", "||5|parent|"),
    "no limit of jobs": ("||0|parent|", "|||parent|"),
    "a share of its own": ("|0|parent|", "|0|1|"),
}


def test_an_association_that_was_put_aside_has_all_the_marks() -> None:
    tree = parse.associations(LINEAGE.replace(*MARKED), parse.LINEAGE_COLUMNS)
    assert tree.put_aside == tree.closed == {Association("b", "bob")}


@pytest.mark.parametrize("what", OTHERS)
def test_one_mark_less_is_somebody_elses_association(what: str) -> None:
    assert MARKED[1].count(OTHERS[what][0]) == 1
    tree = parse.associations(
        LINEAGE.replace(MARKED[0], MARKED[1].replace(*OTHERS[what])), parse.LINEAGE_COLUMNS
    )
    assert not tree.put_aside
    assert tree.closed == (set() if "of all jobs" in what else {Association("b", "bob")})
