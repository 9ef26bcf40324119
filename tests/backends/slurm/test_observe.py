# SPDX-License-Identifier: MIT
"""Reading a cluster: one process per part, a part as a whole or an error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent.core.associations import Association
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, ParseError
from agent.core.model import TREE_PARTS, Account, Part, Snapshot
from backends.base import BackendContext, Reread, Scope
from backends.process import CommandMissing
from backends.slurm.reader import NAMED_AT_MOST
from tests.backends.slurm.stand_in import ROOT, HeadNode, Rule

COLUMNS = "cluster,account,user,partition,parentname,grptresmins,grpsubmit,qos,defaultqos,maxtresmins"
TREE, TREE_BY_LINEAGE, TREE_BY_PARENTS = (
    f"show assoc cluster=c1 format={COLUMNS},maxsubmit,share,lft,rgt WOPInfo",
    f"show assoc cluster=c1 format={COLUMNS},maxsubmit,share,lineage WOPInfo",
    f"show assoc cluster=c1 format={COLUMNS} WOPLimits",
)
DEFAULTS = "show assoc cluster=c1 format=account,user OnlyDefaults WOPInfo"
USERS_ALL = "show user cluster=c1 format=user,defaultaccount"
TRES, QOS = "list tres format=type,name", "show qos format=name,grptresmins,description"
PARTITIONS = "scontrol --all --oneliner --clusters=c1 show partition"
OWN_QOS = {"qos_management": {"enabled": True}}
LIMITS_ON_QOS = {"qos_management": {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}}
FEW_PARTS = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS})
BEFORE = Snapshot(
    "c1",
    accounts={name: Account(name, parent) for name, parent in (("root", None), ("a", "root"), ("z", "root"))},
    associations=frozenset({Association("a", "gone"), Association("z", "ann"), Association("z", "zoe")}),
    default_accounts={"ann": "z", "gone": "a", "zoe": "z"},
    user_limits={("a", "gone"): {"cpu": 1}, ("z", "zoe"): {"cpu": 2}},
    complete=TREE_PARTS,
)
MANY = frozenset(f"n{number}" for number in range(NAMED_AT_MOST + 1))


@pytest.fixture
def node(tmp_path: Path) -> HeadNode:
    head = HeadNode(tmp_path)
    head.answer("assoc", f"{ROOT}c1|a|||root|cpu=60||normal||\nc1|a|ann|||||||\n")
    head.answer("user", "root|root\nann|a\nbob|\n")
    return head


IN_TREE = {Part.ACCOUNTS, Part.ASSOCIATIONS, Part.USER_LIMITS}
SCOPES: dict[str, tuple[dict[str, Any], Scope, list[str], set[Part]]] = {
    "everything": (
        {},
        Scope(),
        [TREE, TRES, DEFAULTS],
        {*IN_TREE, Part.TRES, Part.DEFAULT_ACCOUNTS},
    ),
    "with QoS of our own": (
        OWN_QOS,
        Scope(),
        [TREE, TRES, QOS, DEFAULTS],
        set(Part) - {Part.JOBS, Part.USAGE, Part.PARTITIONS},
    ),
    "limits on QoS of our own": (
        LIMITS_ON_QOS,
        Scope(frozenset({Part.ACCOUNTS})),
        [TREE, QOS],
        {*IN_TREE, Part.QOS},
    ),
    "names, where members get some": (
        {"qos_enforcement_enabled": True},
        Scope(frozenset(), names=frozenset({Part.QOS, Part.PARTITIONS})),
        [QOS, PARTITIONS],
        {Part.QOS, Part.PARTITIONS},
    ),
    "names, where they get none": (OWN_QOS, Scope(frozenset(), names=frozenset(Part)), [], set()),
    "the tree": (OWN_QOS, Scope(frozenset({Part.ACCOUNTS})), [TREE], IN_TREE),
    "the tree, named by its other half": (
        {},
        Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})),
        [TREE],
        IN_TREE,
    ),
    "TRES": ({}, Scope(frozenset({Part.TRES})), [TRES], {Part.TRES}),
    "nothing": ({}, Scope(frozenset()), [], set()),
    "a few accounts and users": (
        {},
        Scope(FEW_PARTS, reread=Reread(BEFORE, frozenset({"b", "a"}), frozenset({"bob", "ann"}))),
        [
            f"show assoc cluster=c1 format={COLUMNS} account=a,b,root WOPLimits",
            "show assoc cluster=c1 format=account,user user=ann,bob OnlyDefaults WOPInfo",
        ],
        {*IN_TREE, Part.DEFAULT_ACCOUNTS},
    ),
    "a few accounts and no user": (
        {},
        Scope(FEW_PARTS, reread=Reread(BEFORE, frozenset({"a"}), frozenset())),
        [f"show assoc cluster=c1 format={COLUMNS} account=a,root WOPLimits"],
        {*IN_TREE, Part.DEFAULT_ACCOUNTS},
    ),
    **{
        what: (
            settings,
            Scope(FEW_PARTS, reread=reread),
            [TREE, DEFAULTS, *more],
            {*IN_TREE, Part.DEFAULT_ACCOUNTS, *parts},
        )
        for what, settings, reread, more, parts in (
            ("many accounts", {}, Reread(BEFORE, MANY, frozenset()), [], set()),
            ("many users", {}, Reread(BEFORE, frozenset({"a"}), MANY), [], set()),
            (
                "a name that no command may carry",
                {},
                Reread(BEFORE, frozenset({"a,b"}), frozenset()),
                [],
                set(),
            ),
            (
                "few, whose QoS hold limits",
                LIMITS_ON_QOS,
                Reread(BEFORE, frozenset({"a"}), frozenset()),
                [QOS],
                {Part.QOS},
            ),
        )
    },
    "jobs": (
        {},
        Scope(frozenset(), frozenset({"b", "a"})),
        ["--all --clusters=c1 --account=a,b --format=%a|%u"],
        {Part.JOBS},
    ),
}


@pytest.mark.parametrize("what", SCOPES)
def test_a_part_is_one_process(node: HeadNode, what: str) -> None:
    settings, scope, commands, parts = SCOPES[what]
    backend = node.backend(settings)
    snapshot = backend.observe(scope)
    said = [line.removeprefix("sacctmgr ").removeprefix("squeue --noheader ") for line in node.calls()]
    assert sorted(said) == sorted(commands)
    assert snapshot.complete == parts
    assert backend.executed == ({"read": len(commands)} if commands else {})
    assert node.was_locked() <= {False}


def test_the_parts_are_joined_to_one_snapshot(node: HeadNode) -> None:
    node.rules(Rule("squeue", stdout="a|ann\nA|bob\n"))
    snapshot = node.backend().observe(Scope(jobs_of=frozenset({"a", "b"})))
    assert snapshot.cluster == "c1"
    assert set(snapshot.accounts) == {"root", "a"}
    assert snapshot.accounts["a"].limits == {"cpu": 60}
    assert snapshot.associations == {Association("root", "root"), Association("a", "ann")}
    assert snapshot.default_accounts == {"root": "root", "ann": "a"}
    assert snapshot.tres == {"cpu", "mem", "gres/gpu"}
    assert snapshot.active_jobs == {"a": 2, "b": 0}


def test_of_few_what_is_not_listed_is_gone_and_the_rest_is_as_before(node: HeadNode) -> None:
    node.answer(
        "assoc", f"{ROOT}c1|a|||elsewhere|cpu=60||normal||\nc1|a|ann|||||||\nc1|b|||a|||||\nc1|b|bob|||||||\n"
    )
    reread = Reread(BEFORE, frozenset({"a", "b"}), frozenset({"ann", "gone"}))
    backend = node.backend()
    seen = backend.observe(Scope(FEW_PARTS, reread=reread))
    assert backend._reader.seen_rows == len(seen.accounts) + len(seen.associations), "prices go by it"
    assert {name: account.parent for name, account in seen.accounts.items()} == {
        "root": None, "a": "elsewhere", "b": "a", "z": "root",
    }  # fmt: skip
    assert seen.associations == {
        Association("a", "ann"), Association("b", "bob"), Association("z", "ann"), Association("z", "zoe"),
    }  # fmt: skip
    assert seen.user_limits == {("z", "zoe"): {"cpu": 2}}
    assert seen.default_accounts == {"ann": "a", "zoe": "z"}


def test_an_answer_of_few_without_root_is_none(node: HeadNode) -> None:
    node.answer("assoc", "c1|a|||root|||||\n")
    with pytest.raises(ParseError):
        node.backend().observe(Scope(FEW_PARTS, reread=Reread(BEFORE, frozenset({"a"}), frozenset())))


def test_of_few_default_accounts_that_are_not_listed_are_asked_for_once_more(node: HeadNode) -> None:
    node.answer("user", "")
    reread = Reread(BEFORE, frozenset({"a"}), frozenset({"ann"}))
    seen = node.backend().observe(Scope(FEW_PARTS, reread=reread))
    assert "sacctmgr show user name=ann cluster=c1 format=user,defaultaccount" in node.calls()
    assert Part.DEFAULT_ACCOUNTS not in seen.complete


USERS = "ann|a\nbob|\nroot|root\nzoe|a\n"
DEFAULTS_AND_TREE = Scope(frozenset({Part.ACCOUNTS, Part.DEFAULT_ACCOUNTS}))


@pytest.mark.parametrize("lines", range(5))
def test_users_that_are_cut_at_the_end_of_a_line_are_not_complete(
    node: HeadNode, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    node.answer("assoc", f"{ROOT}c1|a|||root|||normal||\nc1|a|ann|||||||\nc1|a|bob|||||||\nc1|a|zoe|||||||\n")
    node.answer("user", "".join(USERS.splitlines(keepends=True)[:lines]))
    snapshot = node.backend().observe(DEFAULTS_AND_TREE)
    assert (Part.DEFAULT_ACCOUNTS in snapshot.complete) == (lines == 4)
    assert {Part.ACCOUNTS, Part.ASSOCIATIONS} <= snapshot.complete
    assert "bob" not in snapshot.default_accounts
    skipped = {0: "ann (4 in all)", 1: "bob (3 in all)", 2: "root (2 in all)", 3: "zoe (1 in all)"}
    assert skipped.get(lines, "") in caplog.text
    assert bool(caplog.text) == (lines < 4)


def test_default_accounts_without_the_tree_are_not_known_to_be_complete(node: HeadNode) -> None:
    snapshot = node.backend().observe(Scope(frozenset({Part.DEFAULT_ACCOUNTS})))
    assert snapshot.default_accounts == {"root": "root", "ann": "a"}
    assert snapshot.complete == frozenset()


def test_without_a_name_of_the_cluster_all_of_slurmdbd_is_read(node: HeadNode) -> None:
    node.backend({"cluster_name": None}).observe()
    assert not [line for line in node.calls() if "cluster=" in line]


def test_several_clusters_without_a_name_are_an_error_that_says_what_to_set(node: HeadNode) -> None:
    node.answer("assoc", f"{ROOT}c2|root||||||normal||\n")
    with pytest.raises(BackendError, match=r"knows the clusters c1, c2: set backend_settings\.cluster_name"):
        node.backend({"cluster_name": None}).observe()


def test_a_cluster_that_slurmdbd_does_not_know_is_no_empty_cluster(node: HeadNode) -> None:
    """`show assoc cluster=nosuch` ends with 0 and says nothing (22.05)."""
    node.answer("assoc", "")
    with pytest.raises(ParseError, match="the root account is missing"):
        node.backend().observe()


FAILURES: dict[str, tuple[Rule, type[BackendError]]] = {
    "outage of the tree": (Rule("show assoc", 1, stderr="Connection refused\n"), BackendUnavailable),
    "outage of the default accounts": (
        Rule("OnlyDefaults", 1, stderr="Connection refused\n"),
        BackendUnavailable,
    ),
    "outage of the TRES": (Rule("list tres", 1, stderr="Connection refused\n"), BackendUnavailable),
    "outage of the QoS": (Rule("show qos", 1, stderr="Connection refused\n"), BackendUnavailable),
    "an outage that ends with 0": (
        Rule("OnlyDefaults", 0, stderr="Connection refused\n"),
        BackendUnavailable,
    ),
    "a refusal": (Rule("show assoc", 1, stderr="no\n"), CommandFailed),
    "a cut tree": (Rule("show assoc", stdout="c1|root||||||no"), ParseError),
    "cut default accounts": (Rule("OnlyDefaults", stdout="root|ro"), ParseError),
    "cut TRES": (Rule("list tres", stdout="cpu|\nme"), ParseError),
    "no TRES": (Rule("list tres", stdout=""), ParseError),
    "a killed read": (Rule("show assoc", -9), CommandFailed),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_part_that_cannot_be_read_is_an_error_and_never_empty(node: HeadNode, what: str) -> None:
    rule, kind = FAILURES[what]
    node.rules(rule)
    with pytest.raises(BackendError) as error:
        node.backend(OWN_QOS).observe(Scope(jobs_of=frozenset({"a"})))
    assert type(error.value) is kind
    assert error.value.retryable or what == "a refusal"


def test_words_beside_an_answer_are_logged(node: HeadNode, caplog: pytest.LogCaptureFixture) -> None:
    node.rules(Rule("list tres", stdout="cpu|\n", stderr="a warning\n"))
    assert node.backend().observe().tres == {"cpu"}
    assert "said: a warning" in caplog.text


def test_without_squeue_jobs_are_unknown(tmp_path: Path) -> None:
    node = HeadNode(tmp_path, programs=["sacctmgr"])
    snapshot = node.backend().observe(Scope(frozenset(), frozenset({"a"})))
    assert Part.JOBS not in snapshot.complete
    assert snapshot.active_jobs == {}


def test_without_sacctmgr_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(CommandMissing, match="cannot start"):
        HeadNode(tmp_path, programs=[]).backend().observe()


def reads(node: HeadNode) -> list[str]:
    return sorted(line.removeprefix("sacctmgr ") for line in node.calls())


def test_who_has_no_default_account_is_asked_for_by_name(node: HeadNode) -> None:
    node.answer("assoc", f"{ROOT}c1|a|||root|||normal||\nc1|a|ann|||||||\nc1|a|bob|||||||\n")
    snapshot = node.backend().observe(DEFAULTS_AND_TREE)
    assert reads(node) == sorted([TREE, DEFAULTS, f"show user name=bob {USERS_ALL[10:]}"])
    assert Part.DEFAULT_ACCOUNTS in snapshot.complete
    assert snapshot.default_accounts == {"root": "root", "ann": "a"}


def test_of_very_many_without_a_default_account_all_users_are_listed(node: HeadNode) -> None:
    users = [f"u{number}" for number in range(NAMED_AT_MOST + 1)]
    node.answer("assoc", ROOT + "c1|a|||root|||normal||\n" + "".join(f"c1|a|{u}|||||||\n" for u in users))
    node.answer("user", "root|root\n" + "".join(f"{user}|\n" for user in users))
    assert Part.DEFAULT_ACCOUNTS in node.backend().observe(DEFAULTS_AND_TREE).complete
    assert reads(node) == sorted([TREE, DEFAULTS, USERS_ALL])


NO_PLACES = Rule("lft", 1, stderr="Unknown field 'lft'\n")
NO_LINEAGES = Rule("lineage", 1, stderr="Unknown field 'lineage'\n")
LINEAGES = """\
c1|root||||||normal|||||/
c1|root|root||||||||||/0-root/
c1|a||||cpu=60||normal|||||/a/
c1|a|ann||||||||||/a/0-ann/
"""
RELEASES = {
    "23.11 and later": (Rule("lineage", stdout=LINEAGES), {TREE: 1, TREE_BY_LINEAGE: 3, DEFAULTS: 3}),
    "slurm-emulator": (
        NO_LINEAGES,
        {TREE: 1, TREE_BY_LINEAGE: 1, TREE_BY_PARENTS: 3, DEFAULTS: 2, USERS_ALL: 1},
    ),
}


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_without_places_is_asked_for_what_it_has_from_then_on(node: HeadNode, release: str) -> None:
    answer, expected = RELEASES[release]
    whole = node.backend().observe()
    node.rules(NO_PLACES, answer)
    node.forget_calls()
    context = BackendContext("0" * 32, node.folder / "state")
    backend, of_next_process = node.backend(context=context), node.backend(context=context)
    assert backend.observe() == backend.observe() == of_next_process.observe() == whole
    asked = (DEFAULTS, USERS_ALL)
    assert Counter(read for read in reads(node) if f"format={COLUMNS}" in read or read in asked) == expected


def test_a_tree_that_does_not_fit_together_is_looked_at_again_by_the_next_process(node: HeadNode) -> None:
    """`slurmdbd -R` may have repaired it."""
    node.rules(Rule("lft", stdout="c1|root||||||normal|||||1|2\nc1|a||||||normal|||||3|4\n"))
    context = BackendContext("0" * 32, node.folder / "state")
    for _ in range(2):
        node.backend(context=context).observe()
    trees = Counter(read for read in reads(node) if f"format={COLUMNS}" in read)
    assert trees == {TREE: 2, TREE_BY_PARENTS: 2}


def test_what_a_tree_was_read_by_is_tried_first_and_forgotten_where_it_is_refused(node: HeadNode) -> None:
    """As after a way back to an older release, or another `slurm_bin_path`."""
    node.backend().observe()
    context = BackendContext("0" * 32, node.folder / "state")
    context.tree_columns.write({"c1": "lineage"})
    node.rules(NO_LINEAGES)
    for trees in ({TREE_BY_LINEAGE: 1, TREE: 1}, {TREE: 1}):
        node.forget_calls()
        node.backend(context=context).observe()
        assert Counter(read for read in reads(node) if f"format={COLUMNS}" in read) == trees
    assert context.tree_columns.read() == {"c1": "rgt"}


def test_a_program_that_lists_all_associations_for_the_default_ones_is_asked_for_users(
    node: HeadNode,
) -> None:
    """As slurm-emulator takes the option."""
    whole = node.backend().observe()
    node.rules(Rule("OnlyDefaults", stdout="a|\na|ann\nroot|\nroot|root\n"))
    node.forget_calls()
    backend = node.backend()
    assert backend.observe() == backend.observe() == whole
    assert reads(node).count(DEFAULTS) == 1
    assert reads(node).count(USERS_ALL) == 2


OVERLAPPING = Rule("lft", stdout="c1|root||||||normal|||||1|4\nc1|a|||||||||||3|6\n")
ORPHANED = Rule("lineage", stdout=LINEAGES.replace("|/a/\n", "|/b/a/\n"))
CONTRADICTIONS = {
    "its place 3 to 6 is not within root": ([OVERLAPPING], "slower. slurmdbd -R repairs the tree"),
    "its lineage does not lead to root by b": ([NO_PLACES, ORPHANED], "slower\n"),
}


@pytest.mark.parametrize("problem", CONTRADICTIONS)
def test_rows_that_contradict_each_other_are_warned_of_and_parents_read_instead(
    node: HeadNode, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    """As a tree that `slurmdbd -R` has to mend."""
    rules, remedy = CONTRADICTIONS[problem]
    whole = node.backend().observe()
    node.rules(*rules)
    assert node.backend().observe() == whole
    assert problem in caplog.text
    assert remedy in caplog.text


def test_how_a_read_ended_counts_more_than_what_it_printed(node: HeadNode) -> None:
    node.rules(Rule("show assoc", 1, stdout="half a row\n", stderr="Connection refused\n"))
    with pytest.raises(BackendUnavailable, match="does not answer"):
        node.backend().observe(Scope(frozenset({Part.ACCOUNTS})))
