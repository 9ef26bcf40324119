# SPDX-License-Identifier: MIT
"""Resources that lost the name of their account: which get it back, and where that is unknown."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from agent.core.account_names import NameRules
from agent.core.model import Resource, ResourceState
from agent.plan.lost import claims_of_lost_ids
from tests.agent.plan.worlds import RULES, cluster

TREE = {"root": None, "c_cust": "root", "p_proj": "c_cust", "a_one": "p_proj", "a_proj": "p_proj"}
BY_PROJECT = {"plugin_options": {"account_name_generation_policy": "project_slug"}}


def lost(slug: str = "One", **fields: Any) -> Resource:
    values = {"project_slug": "proj", "state": ResourceState.OK, **fields}
    return Resource(f"uuid-{slug}", slug, slug, **values)


def claimed(
    resources: Iterable[Resource], *, named: Iterable[str] = (), names: NameRules = RULES.names
) -> list[str]:
    return [
        c.render().split("  (")[0]
        for c in claims_of_lost_ids(resources, replace(RULES, names=names), cluster(TREE), frozenset(named))
    ]


def test_an_account_of_its_name_below_its_project_is_its_own() -> None:
    assert claimed([lost()]) == ["claim account a_one for resource uuid-One"]
    assert claimed([lost("x", **BY_PROJECT)]) == ["claim account a_proj for resource uuid-x"]
    assert claimed([lost("one-and-more")], names=NameRules("c_", "p_", "a_", max_length=5)) == [
        "claim account a_one for resource uuid-one-and-more"
    ]


@pytest.mark.parametrize(
    "resource",
    [
        lost(state=ResourceState.ERRED),
        lost(state=ResourceState.CREATING),
        lost(backend_id="a_other"),
        lost(slug="two"),
        lost(slug=""),
        lost(project_slug="other"),
        lost(project_slug=""),
    ],
    ids=["erred", "creating", "named", "no such account", "no slug", "other project", "no project"],
)
def test_others_get_nothing(resource: Resource) -> None:
    assert claimed([resource]) == []


def test_an_account_that_is_named_already_is_not_given_away() -> None:
    assert claimed([lost()], named={"a_one"}) == []


def test_where_two_would_get_the_same_account_neither_does() -> None:
    assert claimed([lost("x", **BY_PROJECT), lost("y", **BY_PROJECT)]) == []
