# SPDX-License-Identifier: MIT
"""docs/configuration.md lists each key and each variable, and none that is not there."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import StrEnum

import pytest

from agent.config.environment import Variables
from agent.config.keys import keys_of
from agent.config.legacy_env import OldVariables
from agent.config.model import Periods
from agent.config.schema import (
    BackendSettingsKeys,
    BudgetKeys,
    ComponentKeys,
    ComputedKeys,
    OfferingKeys,
    RootKeys,
)
from agent.core.policy import BUDGETS, PolicyRules
from backends.moab.schema import MoabSettings
from backends.slurm.schema import SlurmSettings
from backends.usernames.ldap.provider_group_schema import ParentKeys
from backends.usernames.ldap.schema import AccessGroup, LdapKeys
from backends.usernames.template import TemplateSettings

from .samples import REPOSITORY

TEXT = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
ROOTS = (
    RootKeys,
    OfferingKeys,
    BackendSettingsKeys,
    ComponentKeys,
    SlurmSettings,
    MoabSettings,
    TemplateSettings,
    LdapKeys,
)
VARIABLES = (Variables, Periods, OldVariables)


def first_column(heading: str) -> dict[str, str]:
    """The second column of the tables below a heading, by what stands in backticks in the first."""
    _, _, below = TEXT.partition(f" {heading}\n")
    section = re.split(r"\n#+ ", below)[0]
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]*)\|", section, re.MULTILINE)
    return {name: default.strip() for name, default in rows}


def kinds(kind: type) -> Iterator[type]:
    """The dataclass, the one that it inherits keys from, and those of the maps below it."""
    yield from (each for each in kind.__mro__ if is_dataclass(each))
    for each in keys_of(kind).values():
        if each.inner is not None:
            yield from kinds(each.inner)


# Their keys are explained where the key above them is, and the other has one key, of which they are the keys.
IN_ONE_ROW = {ComputedKeys, BudgetKeys, AccessGroup, ParentKeys, TemplateSettings, LdapKeys}


def test_each_map_of_keys_has_a_table() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs").glob("*.md"))
    tables = re.findall(r"^<!-- (?:key|variable)s: (\S+) -->$", pages, re.MULTILINE)
    assert len(tables) == len(set(tables))
    wanted = {each for root in (*ROOTS, *VARIABLES) for each in kinds(root)}
    assert set(map(pkgutil.resolve_name, tables)) == wanted - IN_ONE_ROW


def test_a_table_says_default_and_meaning() -> None:
    """As people read it; docs/generate.py writes it, and tests/docs holds the pages to that."""
    rows = first_column("Offering keys")
    assert (rows["name"], rows["resource_import_enabled"], rows["queue"]) == (
        "required", "false", "`backend_settings.cluster_name`, else `default`",
    )  # fmt: skip


def test_defaults_in_words_are_those_of_the_rules() -> None:
    """The keys of `policy` have none of their own: what an offering does not write comes from the root."""
    for name, default in first_column("`policy`").items():
        value = getattr(PolicyRules(), name)
        if isinstance(value, bool | int):
            assert default == str(value).lower(), name
        elif isinstance(value, StrEnum):
            assert default == f"`{value}`", name


def test_each_variable_that_is_read_is_declared() -> None:
    """Or the pages would lack it."""
    declared = {name for kind in VARIABLES for name in keys_of(kind)}
    others = {"CREDENTIALS_DIRECTORY", "HOME", "XDG_STATE_HOME"}  # of the host and of systemd
    for file in (REPOSITORY / "agent" / "config").glob("*.py"):
        read = set(re.findall(r"environ(?:\.get\(|\[)\"(\w+)\"", file.read_text()))
        assert read <= declared | others, file
    assert (
        set(re.findall(r"\b(?:WALDUR_SITE_AGENT|SLURM|SENTRY)_[A-Z_]+\b", TEXT)) - {"SLURM_JWT"} <= declared
    )


@pytest.mark.parametrize("key", sorted(keys_of(ComputedKeys)))
def test_keys_of_the_past(key: str) -> None:
    assert f"`{key}`" in TEXT


def test_budgets() -> None:
    written = {name: int(hour) for name, hour in first_column("`budgets`").items()}
    assert written == {cost: budget.hour for cost, budget in BUDGETS.items()}
