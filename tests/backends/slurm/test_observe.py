# SPDX-License-Identifier: MIT
"""Reading a cluster: one process per part, a part as a whole or an error, and what `check` finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.associations import Association
from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, ParseError
from agent.core.model import TREE_PARTS, Account, Health, MemberQos, Part, Snapshot
from backends.base import Few, Scope
from backends.process import CommandMissing
from backends.slurm.reader import NAMED_AT_MOST
from tests.backends.slurm.stand_in import ROOT, HeadNode, Rule

COLUMNS = "cluster,account,user,partition,parentname,grptresmins,grpsubmit,qos,defaultqos,maxtresmins"
TREE, TREE_BY_PARENTS = (
    f"show assoc cluster=c1 format={COLUMNS},lft,rgt WOPInfo",
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
        Scope(FEW_PARTS, few=Few(BEFORE, frozenset({"b", "a"}), frozenset({"bob", "ann"}))),
        [
            f"show assoc cluster=c1 format={COLUMNS} account=a,b,root WOPLimits",
            "show assoc cluster=c1 format=account,user user=ann,bob OnlyDefaults WOPInfo",
        ],
        {*IN_TREE, Part.DEFAULT_ACCOUNTS},
    ),
    "a few accounts and nobody": (
        {},
        Scope(FEW_PARTS, few=Few(BEFORE, frozenset({"a"}), frozenset())),
        [f"show assoc cluster=c1 format={COLUMNS} account=a,root WOPLimits"],
        {*IN_TREE, Part.DEFAULT_ACCOUNTS},
    ),
    **{
        what: (
            settings,
            Scope(FEW_PARTS, few=few),
            [TREE, DEFAULTS, *more],
            {*IN_TREE, Part.DEFAULT_ACCOUNTS, *parts},
        )
        for what, settings, few, more, parts in (
            ("many accounts", {}, Few(BEFORE, MANY, frozenset()), [], set()),
            ("many users", {}, Few(BEFORE, frozenset({"a"}), MANY), [], set()),
            ("a name that no command may carry", {}, Few(BEFORE, frozenset({"a,b"}), frozenset()), [], set()),
            (
                "few, whose QoS hold limits",
                LIMITS_ON_QOS,
                Few(BEFORE, frozenset({"a"}), frozenset()),
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


def test_of_few_what_is_not_shown_is_gone_and_the_rest_is_as_before(node: HeadNode) -> None:
    node.answer(
        "assoc", f"{ROOT}c1|a|||elsewhere|cpu=60||normal||\nc1|a|ann|||||||\nc1|b|||a|||||\nc1|b|bob|||||||\n"
    )
    few = Few(BEFORE, frozenset({"a", "b"}), frozenset({"ann", "gone"}))
    backend = node.backend()
    seen = backend.observe(Scope(FEW_PARTS, few=few))
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
        node.backend().observe(Scope(FEW_PARTS, few=Few(BEFORE, frozenset({"a"}), frozenset())))


def test_of_few_default_accounts_that_are_not_shown_are_asked_for_once_more(node: HeadNode) -> None:
    node.answer("user", "")
    few = Few(BEFORE, frozenset({"a"}), frozenset({"ann"}))
    seen = node.backend().observe(Scope(FEW_PARTS, few=few))
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
    left_out = {0: "ann (4 in all)", 1: "bob (3 in all)", 2: "root (2 in all)", 3: "zoe (1 in all)"}
    assert left_out.get(lines, "") in caplog.text
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


def test_a_release_without_places_is_asked_for_parents_from_then_on(node: HeadNode) -> None:
    """As 23.11 and later say it, and slurm-emulator."""
    whole = node.backend().observe()
    node.rules(Rule("lft", 1, stderr="Unknown field 'lft'\n"))
    node.forget_calls()
    backend = node.backend()
    assert backend.observe() == backend.observe() == whole
    assert reads(node).count(TREE) == 1
    assert reads(node).count(TREE_BY_PARENTS) == 2


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


def test_places_that_do_not_nest_are_warned_of_and_parents_read_instead(
    node: HeadNode, caplog: pytest.LogCaptureFixture
) -> None:
    """As a tree that `slurmdbd -R` has to mend."""
    whole = node.backend().observe()
    node.rules(Rule("lft", stdout="c1|root||||||normal|||1|4\nc1|a|||||||||3|6\n"))
    assert node.backend().observe() == whole
    assert "its place 3 to 6 is not within root" in caplog.text
    assert "slurmdbd -R" in caplog.text


def test_how_a_read_ended_counts_more_than_what_it_printed(node: HeadNode) -> None:
    node.rules(Rule("show assoc", 1, stdout="half a row\n", stderr="Connection refused\n"))
    with pytest.raises(BackendUnavailable, match="does not answer"):
        node.backend().observe(Scope(frozenset({Part.ACCOUNTS})))


# check ----------------------------------------------------------------------------------------------

CHECKS: dict[str, tuple[dict[str, Any], Health]] = {
    "all well": ({}, Health("22.05.8", "c1")),
    "its own accounts": ({"default_account": "a", "root_account": "a"}, Health("22.05.8", "c1")),
    "another cluster": (
        {"cluster_name": "c9"},
        Health("22.05.8", "c9", ("cluster_name is 'c9'; slurmdbd knows c1",)),
    ),
    "no name": (
        {"cluster_name": None},
        Health(
            "22.05.8",
            "default",
            warnings=("cluster_name is not set; with more than one cluster in slurmdbd it must be",),
        ),
    ),
    "no default account": (
        {"default_account": "gone", "root_account": "root"},
        Health("22.05.8", "c1", ("default_account 'gone' has no account on cluster c1: create it first",)),
    ),
    "neither root nor parent account": (
        {"root_account": "r", "parent_account": "p"},
        Health(
            "22.05.8",
            "c1",
            (
                "root_account 'r' has no account on cluster c1: create it first",
                "parent_account 'p' has no account on cluster c1: create it first",
            ),
        ),
    ),
}


@pytest.mark.parametrize("what", CHECKS)
def test_check(node: HeadNode, what: str) -> None:
    settings, health = CHECKS[what]
    assert node.backend(settings).check() == health


def test_check_raises_where_nothing_can_be_known_now(node: HeadNode) -> None:
    node.rules(Rule("list cluster", 1, stderr="Connection refused\n"))
    with pytest.raises(BackendUnavailable):
        node.backend().check()


def test_limits_that_were_left_on_a_qos_of_ours_are_seen(node: HeadNode) -> None:
    node.answer("assoc", f"{ROOT}c1|d|||root|||d|d|\n")
    node.answer("user", "root|root\n")
    node.answer(
        "qos",
        "normal||x\nc|cpu=9|c\nd|cpu=60,mem=2000M|waldur-site-cluster: account d on c1\n"
        "e|cpu=9|waldur-site-cluster: account e on c2\n",
    )
    assert node.backend(OWN_QOS).observe().qos_limits == {"d": {"cpu": 60, "mem": 2000}}
    limiting = {"qos_management": {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}}
    snapshot = node.backend(limiting).observe()
    assert (snapshot.qos_limits, snapshot.accounts["d"].limits) == ({}, {"cpu": 60, "mem": 2000})


def test_limits_are_those_of_the_accounts_own_qos_unless_it_was_limited_before(node: HeadNode) -> None:
    node.answer(
        "assoc",
        f"{ROOT}c1|a|||root|||a|a|\nc1|b|||root|cpu=5||b|b|\nc1|c|||root|cpu=5||normal||\nc1|d|||root|||d|d|\nc1|e|||root|||e|e|\n"
        "c1|d|ann|gpu||||fast,slow|fast|\n",
    )
    node.answer("user", "root|root\nann|d\n")
    node.answer(
        "qos",
        "normal||x\na|cpu=60,mem=2000M|made | by hand\nb||b\nc|cpu=9|c\nd||waldur-site-cluster: account d on c1\n"
        "e|cpu=9|waldur-site-cluster: account e on c2\nfast||\n",
    )
    snapshot = node.backend(
        {"qos_management": {"enabled": True, "skip_qos_swap": True, "apply_limits_to_qos": True}}
    ).observe()
    found = {name: (account.limits, account.limits_on_qos) for name, account in snapshot.accounts.items()}
    assert found == {
        "root": ({}, False),
        "a": ({"cpu": 60, "mem": 2000}, True),
        "b": ({"cpu": 5}, False),
        "c": ({"cpu": 5}, False),
        "d": ({}, True),
        "e": ({}, False),
    }
    assert (snapshot.made_qos, snapshot.foreign_qos) == ({"d"}, {"e"})
    assert snapshot.member_qos == {
        Association("d", "ann", "gpu"): MemberQos(frozenset({"fast", "slow"}), "fast")
    }
