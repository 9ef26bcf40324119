# SPDX-License-Identifier: MIT
"""What a check of the backend finds, by the cluster that answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.core.errors import BackendUnavailable
from agent.core.model import Health
from tests.backends.slurm.stand_in import ROOT, HeadNode, Rule


@pytest.fixture
def node(node: HeadNode) -> HeadNode:
    node.answer("assoc", f"{ROOT}c1|a|||root|cpu=60||normal||\nc1|a|ann|||||||\n")
    node.answer("user", "root|root\nann|a\nbob|\n")
    return node


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
    assert replace(node.backend(settings).check(), release="") == health


def test_check_raises_where_nothing_can_be_known_now(node: HeadNode) -> None:
    node.rules(Rule("list cluster", 1, stderr="Connection refused\n"))
    with pytest.raises(BackendUnavailable):
        node.backend().check()
