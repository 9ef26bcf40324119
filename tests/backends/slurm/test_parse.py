# SPDX-License-Identifier: MIT
"""Answers of SLURM, as recorded and cut: parsed whole, or not at all.

The transcripts are what these commands printed about one and the same site.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.associations import Association
from agent.core.errors import ParseError
from agent.core.model import Account, Snapshot
from backends.slurm import parse
from backends.slurm.parse import Tree

TRANSCRIPTS = Path(__file__).with_name("transcripts")
VERSIONS = ["22.05", "26.05"]


def transcript(version: str, name: str) -> str:
    return (TRANSCRIPTS / version / f"{name}.txt").read_text(encoding="utf-8")


NORMAL, BOTH = frozenset({"normal"}), frozenset({"normal", "fast"})
# The emulator always prints inherited QoS as well.
INHERITED = {"22.05": frozenset(), "26.05": NORMAL}
ACCOUNTS = {
    "root": Account("root", None, qos=NORMAL),
    "c_cust": Account("c_cust", "root"),
    "p_proj": Account("p_proj", "c_cust"),
    "a_one": Account(
        "a_one",
        "p_proj",
        limits={"cpu": 600, "gres/gpu": 5, "mem": 2048},
        qos=BOTH,
        default_qos="fast",
        submit_limit=0,
    ),
    "a_two": Account("a_two", "p_proj", limits={"cpu": 0, "mem": 1025}),
}
ASSOCIATIONS = frozenset(
    {
        Association("root", "root"),
        *(Association("a_one", user) for user in ("ann", "bob", "root")),
        *(Association("a_two", "ann", partition) for partition in ("gpu", "main")),
        Association("a_two", "x.y@z-0_1"),
    }
)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_tree(version: str) -> None:
    tree = parse.associations(transcript(version, "assoc"))
    assert tree.clusters == {"test"}
    assert {name: account for name, account in tree.accounts.items() if name != "exa"} == {
        name: account if account.qos else replace(account, qos=INHERITED[version])
        for name, account in ACCOUNTS.items()
    }
    assert tree.associations == ASSOCIATIONS
    assert tree.user_limits == {("a_one", "bob"): {"cpu": 60, "mem": 2048}}


def test_the_rows_of_another_cluster_are_recognised() -> None:
    assert parse.associations(transcript("22.05", "two_clusters")).clusters == {"test", "other"}


@pytest.mark.parametrize("version", VERSIONS)
def test_default_accounts_name_every_user_with_or_without_one(version: str) -> None:
    without = {"u1": "", "u2": ""} if version == "22.05" else {}
    assert parse.default_accounts(transcript(version, "user")) == {
        **without,
        "root": "root",
        "ann": "a_one",
        "bob": "a_one",
        "x.y@z-0_1": "a_two",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_tres_have_a_kind_and_some_a_name(version: str) -> None:
    names = parse.tres_names(transcript(version, "tres"))
    assert {"cpu", "mem", "node", "billing", "gres/gpu", "fs/disk"} <= names
    assert not any(name.endswith("/") or "|" in name for name in names)


@pytest.mark.parametrize(("version", "protocol"), [("22.05", 9728), ("26.05", 11520)])
def test_clusters_have_the_protocol_of_their_slurmctld(version: str, protocol: int) -> None:
    assert parse.clusters(transcript(version, "cluster")) == {"test": protocol}


def test_active_jobs_are_counted_by_account_and_user() -> None:
    counts = parse.job_counts(transcript("22.05", "squeue"))
    assert counts == {("root", "root"): 1, ("a_one", "root"): 2}
    assert counts["a_two", "root"] == 0
    assert parse.job_counts("") == {}


# Cut answers --------------------------------------------------------------------------------------

SMALL = """\
test|root||||||normal||
test|root|root|||||||
test|a|||root|cpu=60,mem=2G|5|normal||
test|a|ann|||||||
"""
PARSERS = {
    "assoc": parse.associations,
    "user": parse.default_accounts,
    "tres": parse.tres_names,
    "cluster": parse.clusters,
    "squeue": parse.job_counts,
}


@pytest.mark.parametrize("file", PARSERS)
def test_an_answer_that_is_cut_within_a_line_is_no_answer(file: str) -> None:
    """At every byte. Only what ends at the end of a line can be believed."""
    text = transcript("22.05", file)
    for size in range(1, len(text)):
        cut = text[:size]
        if not cut.endswith("\n"):
            with pytest.raises(ParseError, match="the last line is cut"):
                PARSERS[file](cut)


@pytest.mark.parametrize("text", [SMALL, transcript("22.05", "assoc"), transcript("26.05", "assoc")])
def test_a_tree_that_is_cut_at_a_line_holds_whole_lines_or_is_no_tree(text: str) -> None:
    """What is cut behind a line's end, and ends with 0 all the same, cannot be distinguished from a smaller cluster.

    No program of SLURM does that (its output goes to memory, not to a disk that may be full), a wrapper in
    `command_prefix` might: so nothing is deleted before the tree is read again (`Writer` refuses accounts with
    anything below them).
    """
    whole = parse.associations(text)
    lines = text.splitlines(keepends=True)
    for count in range(len(lines)):
        cut = "".join(lines[:count])
        if not count:
            with pytest.raises(ParseError, match="the root account is missing"):
                parse.associations(cut)
            continue
        tree = parse.associations(cut)
        assert tree.accounts.items() <= whole.accounts.items()
        assert tree.associations <= whole.associations
        assert len(tree.accounts) + len(tree.associations) == count


@pytest.mark.parametrize("text", [transcript(version, "assoc") for version in VERSIONS], ids=VERSIONS)
def test_a_tree_with_a_hole_is_no_tree(text: str) -> None:
    """Any one account's line may be missing: unless nothing refers to it, that shows."""
    lines = text.splitlines(keepends=True)
    whole = parse.associations(text)
    referred_to = {a.parent for a in whole.accounts.values()} | {a.account for a in whole.associations}
    for number, line in enumerate(lines):
        account, user = line.split("|")[1:3]
        without = "".join([*lines[:number], *lines[number + 1 :]])
        if not user and account in referred_to:
            with pytest.raises(ParseError, match="is missing"):
                parse.associations(without)
        else:
            parse.associations(without)


@given(data=st.data())
def test_a_tree_with_any_piece_missing_is_smaller_by_whole_lines_or_no_tree(data: st.DataObject) -> None:
    """No cut can make up an account, a member or a limit that is not there."""
    text = SMALL
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    if text[start:end].count("\n") == 0 and start != end:
        return  # a piece of one field: what is left reads like another name
    whole = parse.associations(text)
    try:
        tree = parse.associations(text[:start] + text[end:])
    except ParseError:
        return
    joined = text[:start].rpartition("\n")[2] + text[end:].partition("\n")[0]
    if joined and f"{joined}\n" not in text:
        return  # two halves of two lines that fit together by their columns
    assert tree.accounts.items() <= whole.accounts.items()
    assert tree.associations <= whole.associations


BROKEN: dict[str, tuple[str, str]] = {
    "nothing": ("", "the root account is missing"),
    "blank lines only": ("\n\n", "the root account is missing"),
    "a message instead": ("sacctmgr: error: no\n", "10 columns were asked for, 1 came"),
    "too few columns": ("test|root|||||normal||\n", "10 columns were asked for, 9 came"),
    "too many columns: an account called a|b": (
        SMALL + "test|a|b|||root|||||\n",
        "10 columns were asked for, 11 came",
    ),
    "a line break in a name": (SMALL + "test|a\nb|||root|||\n", "columns were asked for"),
    "a parent that is not there": (SMALL + "test|b|||gone|||||\n", "its parent gone is missing"),
    "an account that is not there": (SMALL + "test|gone|ann|||||||\n", "its account gone is missing"),
    "a limit without a value": (SMALL + "test|b|||root|cpu||||\n", "a limit should read like cpu=100"),
    "a limit that is no number": (SMALL + "test|b|||root|cpu=many||||\n", "a limit should read like cpu=100"),
    "a negative limit": (SMALL + "test|b|||root|cpu=-1||||\n", "a limit should read like cpu=100"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_tree_is_no_tree_and_names_the_line(what: str) -> None:
    text, words = BROKEN[what]
    with pytest.raises(ParseError, match=words) as error:
        parse.associations(text)
    assert error.value.retryable
    assert "sacctmgr show assoc" in str(error.value)


def test_default_associations_are_those_of_users_and_one_account_for_each() -> None:
    assert parse.default_associations("a|ann\nb|bob\na|ann\n") == {"ann": "a", "bob": "b"}
    for more in ("a|\n", "b|ann\n"):
        with pytest.raises(parse.Unfiltered):
            parse.default_associations(f"a|ann\n{more}")


@pytest.mark.parametrize("text", ["", "mem|\n", "gres|gpu\n"])
def test_a_list_of_tres_without_cpu_is_none(text: str) -> None:
    with pytest.raises(ParseError, match="every cluster has the TRES cpu"):
        parse.tres_names(text)


def test_blank_lines_between_rows_do_not_count() -> None:
    assert parse.associations(SMALL.replace("\n", "\n\n")) == parse.associations(SMALL)


def test_rows_in_any_order_are_the_same_tree() -> None:
    lines = transcript("22.05", "assoc").splitlines(keepends=True)
    tree: Tree = parse.associations("".join(lines))
    assert parse.associations("".join(reversed(lines))) == tree


# Quantities ---------------------------------------------------------------------------------------

LIMITS: list[tuple[str, dict[str, int]]] = [
    ("", {}),
    ("cpu=0", {"cpu": 0}),
    ("cpu=600000,mem=2000M", {"cpu": 600_000, "mem": 2000}),
    ("mem=2000", {"mem": 2000}),
    ("mem=2G", {"mem": 2048}),
    ("mem=1T", {"mem": 1024**2}),
    ("mem=2P", {"mem": 2 * 1024**3}),
    ("mem=1?", {"mem": 1024**4}),
    ("mem=1025?", {"mem": 1025 * 1024**4}),
    ("mem=2048K", {"mem": 2}),
    ("mem=62.50G", {"mem": 64_000}),
    ("mem=0.50G", {"mem": 512}),
    ("cpu=2K", {"cpu": 2048}),
    ("cpu=1.5K", {"cpu": 1536}),
    ("gres/gpu=5,gres/gpu:a100=3,fs/disk=7", {"gres/gpu": 5, "gres/gpu:a100": 3, "fs/disk": 7}),
    ("cpu=9223372036854775807", {"cpu": 2**63 - 1}),
    ("cpu=18446744073709551613", {"cpu": 2**64 - 3}),
]


@pytest.mark.parametrize(("text", "limits"), LIMITS)
def test_limits_are_numbers_and_memory_is_in_megabytes(text: str, limits: dict[str, int]) -> None:
    assert parse.tres_limits(text) == limits


@pytest.mark.parametrize(
    "text",
    [
        "cpu", "cpu=", "=5", "cpu=5X", "cpu=1.", "cpu=.5", "cpu= 5", "cpu=5;mem=6", "cpu=\u0661", "cpu=1e5",
        f"cpu={'9' * 5000}", f"mem={'9' * 400}.5G", f"mem=1.{'9' * 400}G",
    ],
)  # fmt: skip
def test_what_is_no_limit_is_not_guessed(text: str) -> None:
    with pytest.raises(ParseError):
        parse.tres_limits(text)


SUBMIT = [("", None), ("0", 0), ("500", 500), ("N", None)]


@pytest.mark.parametrize(("text", "limit"), SUBMIT)
def test_a_limit_of_submitted_jobs(text: str, limit: int | None) -> None:
    tree = parse.associations(SMALL + f"test|b|||root||{text}|normal||\n")
    assert tree.accounts["b"].submit_limit == limit


@pytest.mark.parametrize("text", ["\u00b2", "\u0661", "1e5", "-1", "many", "9" * 5000])
def test_a_limit_of_submitted_jobs_that_is_no_number_is_not_taken_for_none(text: str) -> None:
    with pytest.raises(ParseError, match="GrpSubmit should be a number of jobs"):
        parse.associations(SMALL + f"test|b|||root||{text}|normal||\n")


@pytest.mark.parametrize("minutes", ["9" * 30, "9" * 5000])
def test_a_use_that_no_limit_can_have_is_no_use(minutes: str) -> None:
    row = f"ClusterName=test Account=a UserName= Partition= GrpTRESMins=cpu=600({minutes})\n"
    with pytest.raises(ParseError, match="no TRES can have so many minutes"):
        parse.limit_usage(row)


# Memory -------------------------------------------------------------------------------------------

USERS_OF_LARGE = 20_000
# A set for each user, or for each association, took twice as much.
BYTES_OF_A_USER = 600


def rows_of_large() -> Iterator[str]:
    """Yield a tree as it comes: accounts of ten users each, below root."""
    yield f"test|root||||||normal|||||1|{3 * USERS_OF_LARGE}"
    for number in range(USERS_OF_LARGE // 10):
        left = 2 + 22 * number
        yield f"test|other{number}|||||||||||{left}|{left + 21}"
        for each in range(10):
            yield f"test|other{number}|o{number}_{each}||||||||||{left + 1 + 2 * each}|{left + 2 + 2 * each}"


def test_a_large_tree_and_its_indexes_take_few_bytes_for_each_user() -> None:
    tracemalloc.start()
    try:
        tree = parse.associations(rows_of_large(), parse.PLACED_COLUMNS)
        seen = Snapshot("test", accounts=tree.accounts, associations=tree.associations)
        assert seen.accounts_of("o7_3") == {"other7"}
        assert len(seen.users_of("other7")) == 10
        assert seen.rows_of("other7", "o7_3") == {Association("other7", "o7_3")}
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tree.associations) == USERS_OF_LARGE
    assert peak / USERS_OF_LARGE < BYTES_OF_A_USER
