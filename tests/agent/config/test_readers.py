# SPDX-License-Identifier: MIT
"""A key that is parsed has a reader: every setting is read by code outside the rooms that only parse it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from agent.config.model import LogShipping, Settings
from backends.moab.schema import MoabSettings
from backends.slurm.schema import QosManagement, SlurmSettings
from backends.usernames.ldap.schema import LdapSettings, WelcomeMail

from .samples import REPOSITORY

ROOMS = ("agent", "backends", "tasks", "beat_schedule.py", "flowerconfig.py")
ROOTS = (Settings, SlurmSettings, MoabSettings, LdapSettings)
# These only make the settings; what they read of them says nothing.
PARSERS = (
    "agent/config/",
    "backends/slurm/schema.py",
    "backends/moab/schema.py",
    "backends/usernames/ldap/schema.py",
    "backends/usernames/ldap/provider_group_schema.py",
)
# Read where they are parsed, and for a reason.
READ_BY_PARSERS = {
    "Offering.backend_type": "serves the modes of files of 2024; plugins see it with the offering",
    "PolicyRules.budgets": "PolicyRules.budget reads it",
    **dict.fromkeys(
        (
            "SlurmSettings.execution_mode",
            "SlurmSettings.rest_api",
            "SlurmSettings.qos_management",
            "LdapSettings.uid_range_start",
            "LdapSettings.uid_range_end",
            "LdapSettings.gid_range_start",
            "LdapSettings.gid_range_end",
            "LdapSettings.username_format",
            "LdapSettings.account_source",
            "LdapSettings.on_missing_posix_ids",
            "LdapSettings.on_posix_mismatch",
            "LdapSettings.personal_groups",
            "LdapSettings.login_shells",
            "ProviderGroupSettings.enabled",
            "ProviderGroupSettings.membership",
            "ProviderGroupSettings.on_gid_mismatch",
            "ProviderGroupSettings.parents",
            "ProviderGroupSettings.organization_description",
        ),
        "others follow from it: SlurmSettings.rest, .own_qos; LdapSettings.uids, .name_format, .account_rules; "
        "ProviderGroupSettings.rules",
    ),
    **{f"ParentKeys.{name}": "GroupParent is made of it" for name in ("dn", "attribute", "offering_uuids")},
    **{f"QosManagement.{field.name}": "OwnQos is made of it" for field in fields(QosManagement)},
    "ProviderGroupSettings.managed_marker": "it has no effect, which is said",
    **{
        f"Periods.{mode}_minutes": "Periods.minutes_of reads it"
        for mode in ("order_process", "membership_sync", "report")
    },
}
# What each kind of settings is called where it is read, and in which rooms: `enabled` of another kind is no reader.
# The last word of the expression counts, without the underscore of `self._settings`.
LDAP = ("backends/usernames/ldap/",)
DIRECTORIES = (
    "agent/core/project_directories.py", "agent/plan/project_directories.py",
    "agent/run/people/project_directories.py",
)  # fmt: skip
HOMES = ("agent/core/homes.py", "agent/plan/homes.py", "agent/run/people/", "backends/storage/homes.py")
HOLDERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "AccessGroup": (LDAP, {"access"}),
    "AccountRules": (("agent/plan/posix_accounts.py", "agent/run/people/", *LDAP), {"rules", "account_rules"}),
    "Budget": (("agent/plan/policy/", "agent/run/gate.py", "agent/core/policy.py"), {"budget(cost)", "budgets[cost]"}),
    "Component": (("agent/", "backends/"), {"component", "c"}),
    "ConsoleSettings": (("agent/cli/web/",), {"console", "settings"}),
    "DirectoryRules": (DIRECTORIES, {"rules", "self"}),
    "EventSettings": (("agent/bridge/", "agent/cli/", "agent/run/", "tasks/"), {"events", "broker"}),
    "GroupParent": (("agent/plan/provider_groups.py", *LDAP), {"parent", "p"}),
    "HomeQuota": (HOMES, {"quota"}),
    "HomeRules": (HOMES, {"rules", "homes"}),
    "IdRange": (LDAP, {"numbers"}),
    "LdapSettings": (LDAP, {"settings"}),
    "LogShipping": (
        ("agent/observability/", "agent/run/service/log_shipping.py", "tasks/"),
        {"shipping", "log_shipping"},
    ),
    "MoabSettings": (("backends/moab/",), {"settings"}),
    "NameFormat": (("backends/usernames/",), {"wanted"}),
    "NameRules": (("agent/plan/", "agent/run/", "agent/core/account_names.py"), {"names", "rules"}),
    "Offering": (("agent/", "backends/", "tasks/"), {"offering"}),
    "OidcClient": (("agent/http/", "agent/waldur/"), {"client"}),
    "OidcLogin": (("agent/cli/web/",), {"oidc", "settings"}),
    "OrderHookSettings": (("agent/run/orders/",), {"settings", "order_hook"}),
    "OwnQos": (("agent/plan/accounts.py", "backends/slurm/"), {"own", "own_qos"}),
    "Periods": (("agent/", "tasks/", "beat_schedule.py"), {"periods"}),
    "PolicyRules": (("agent/",), {"rules", "policy"}),
    "ProjectQuota": (DIRECTORIES, {"quota"}),
    "ProviderGroupRules": (("agent/plan/provider_groups.py", *LDAP), {"rules"}),
    "ProviderGroupSettings": (LDAP, {"groups"}),
    "RestAccess": (
        ("backends/slurm/rest/", "backends/slurm/rest_access.py", "backends/slurm/rest_token.py"),
        {"access"},
    ),
    "Settings": (("agent/", "tasks/", "beat_schedule.py"), {"settings", "settings()", "loaded"}),
    "SlurmSettings": (("backends/slurm/",), {"settings", "keys"}),
    "WaldurAccess": (("agent/http/", "agent/waldur/", "agent/bridge/"), {"access"}),
    "WelcomeMail": (LDAP, {"mail"}),
}  # fmt: skip


def kinds(kind: Any, seen: set[type] | None = None) -> set[type]:
    """Return the dataclasses of settings within a type."""
    seen = set() if seen is None else seen
    if isinstance(kind, type) and is_dataclass(kind) and kind not in seen:
        seen.add(kind)
        for hint in get_type_hints(kind).values():
            kinds(hint, seen)
    for inner in get_args(kind):
        kinds(inner, seen)
    return seen


@cache
def reads() -> dict[str, list[tuple[str, ast.expr]]]:
    """Return where `a.b` is read, and `a`, by `b`."""
    found: dict[str, list[tuple[str, ast.expr]]] = defaultdict(list)
    for file in files():
        place = str(file.relative_to(REPOSITORY))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr].append((place, node.value))
    return found


def last_word(expression: ast.expr) -> str:
    return ast.unparse(expression).split(".")[-1].lstrip("_")


def files() -> Iterator[Path]:
    for room in ROOMS:
        path = REPOSITORY / room
        for file in [path] if path.is_file() else path.rglob("*.py"):
            if not str(file.relative_to(REPOSITORY)).startswith(PARSERS):
                yield file


SETTINGS = sorted(
    {(kind, field.name) for root in ROOTS for kind in kinds(root) for field in fields(kind)},
    key=lambda each: (each[0].__name__, each[1]),
)


def unread(settings: list[tuple[type, str]]) -> list[str]:
    return [
        f"{kind.__name__}.{name}"
        for kind, name in settings
        if f"{kind.__name__}.{name}" not in READ_BY_PARSERS
        and not any(
            place.startswith(HOLDERS[kind.__name__][0]) and last_word(holder) in HOLDERS[kind.__name__][1]
            for place, holder in reads().get(name, ())
        )
    ]


def test_every_setting_is_read() -> None:
    assert unread(SETTINGS) == []
    assert len(SETTINGS) > 150


def test_a_key_without_a_reader_is_found() -> None:
    """Also where its name is read of another kind: log_shipping has no `name`, and the root no `queue`."""
    unused = [
        (Settings, "expose_nothing_at_all"),
        (Settings, "queue"),
        (LogShipping, "name"),
        (WelcomeMail, "mode"),
    ]
    assert unread([*unused, (Settings, "timezone")]) == [f"{kind.__name__}.{name}" for kind, name in unused]
