# SPDX-License-Identifier: MIT
"""Read `backend_settings.project_directory`: where the directories of allocations are made, and their Lustre
quota: of a project, or of the group.

No value here stops the agent. What cannot be used is left out with a warning that `config-check` makes an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError

from agent.config import field_types
from agent.config.field_types import shown
from agent.config.findings import Findings, below, key_name, unknown_keys, without_effect
from agent.config.homes import MAX_COUNT, OF_USERS, check_order, folder
from agent.config.refusals import Refusals
from agent.core.project_directories import MAX_PROJECT_ID, DirectoryRules, ProjectQuota

NONE_MADE = "No project directories are made"
NO_QUOTA = "Project directories are made without a quota"
KEYS = frozenset({
    "enabled", "base_path", "owner", "permissions", "set_gid", "set_acl", "group_owner_source", "group_name",
    "lustre_quota",
})  # fmt: skip
QUOTA_KEYS = frozenset({"mount_point", "quota_type", "project_id_offset", *OF_USERS})
QUOTA_TYPES = ("project", "group")
BY_ACCOUNT = "project_id"
SET_GROUP_ID = 0o2000
OTHERS_WRITE = 0o002


def read_project_directories(
    section: Mapping[Any, Any], path: str, findings: Findings
) -> DirectoryRules | None:
    """Return the rules for project directories; None where none are wanted, or the settings cannot be used."""
    given = {key_name(name): value for name, value in section.items() if value is not None}
    findings.add(unknown_keys(section, KEYS, path))
    refused = Refusals(path, findings, NONE_MADE)
    if not (refused.read(given, "enabled", field_types.flag) if "enabled" in given else False):
        findings.add(without_effect(section, KEYS - {"enabled"}, path, "`enabled: true` is not written"))
        return None
    values: dict[str, Any] = {
        "base_path": "/valhalla/projects",
        "owner": "nobody",
        "permissions": 0o770,
        "set_gid": True,
        "set_acl": True,
        "group_owner_source": BY_ACCOUNT,
        "group_name": "",
        "lustre_quota": {},
    }
    kinds = {
        "base_path": _base_path,
        "owner": field_types.text_or_number,
        "permissions": _mode,
        "group_owner_source": field_types.text,
        "group_name": field_types.text,
        "lustre_quota": field_types.mapping,
    }
    for key in values.keys() & given.keys():
        values[key] = refused.read(given, key, kinds.get(key, field_types.flag))
    if refused.any:
        return None
    if values["permissions"] & OTHERS_WRITE:
        findings.warn(below(path, "permissions"), "everybody may write into project directories")
    if values["group_owner_source"] == BY_ACCOUNT:
        why = "the group is the account's own. Another needs `group_owner_source: group_name` beside it"
        findings.add(without_effect(section, ("group_name",), path, why))
    group_name = "" if values["group_owner_source"] == BY_ACCOUNT else values["group_name"]
    quota_path = below(path, "lustre_quota")
    quota = _quota(values["lustre_quota"], quota_path, findings)
    if quota is not None and group_name:
        sentence = (
            f"the quota is that of a group, or of its number, and all directories belong to group {group_name}: "
            f"they would share the quota of one. Set group_owner_source to {BY_ACCOUNT}, or leave lustre_quota out"
        )
        Refusals(quota_path, findings, NO_QUOTA).add("", sentence)
        quota = None
    if quota is not None and quota.of_group and not values["set_gid"]:
        sentence = "with `quota_type: group` only files of the group count: set_gid makes them so"
        findings.warn(below(path, "set_gid"), sentence)
    return DirectoryRules(
        base_path=values["base_path"].rstrip("/"),
        owner=values["owner"],
        mode=values["permissions"] | (SET_GROUP_ID if values["set_gid"] else 0),
        has_acl=values["set_acl"],
        group_name=group_name,
        quota=quota,
    )


def _quota(section: Mapping[Any, Any], path: str, findings: Findings) -> ProjectQuota | None:
    given = {key_name(name): value for name, value in section.items() if value is not None}
    if not given:
        return None
    findings.add(unknown_keys(section, QUOTA_KEYS, path))
    refused = Refusals(path, findings, NO_QUOTA)
    mount_point = refused.read(given, "mount_point", folder) if "mount_point" in given else "/valhalla"
    offset = refused.read(given, "project_id_offset", _offset) if "project_id_offset" in given else 0
    kind = refused.read(given, "quota_type", field_types.choice(*QUOTA_TYPES)) or QUOTA_TYPES[0]
    if kind == QUOTA_TYPES[1]:
        why = "with `quota_type: group` there is no project id"
        findings.add(without_effect(section, ("project_id_offset",), path, why))
        offset = 0
    limits = {
        key: refused.read(given, key, field_types.whole(0, MAX_COUNT)) for key in OF_USERS if key in given
    }
    check_order(limits, refused)
    if not limits:
        refused.add("", f"no limit is set: give one of {', '.join(OF_USERS)}")
    if refused.any:
        return None
    found = tuple((OF_USERS[key], str(limits[key])) for key in limits)
    return ProjectQuota(mount_point, found, offset, kind == QUOTA_TYPES[1])


def _base_path(value: Any) -> str:
    place = folder(value)
    if not place.strip("/"):
        raise ValidationError("is the root folder, which cannot hold project directories")
    return place


def _mode(value: Any) -> int:
    """Return the rights. A number that YAML has read as octal (0770 is 504) shows by an owner without all rights."""
    digits = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    try:
        mode = int(digits, 8) if digits.isdigit() and len(digits) <= 4 else -1
    except ValueError:
        mode = -1
    if mode & ~0o2777 or mode & 0o700 != 0o700:
        raise ValidationError(
            f'is {shown(value)}; write octal digits in quotes, such as "770": the owner has all rights'
        )
    return mode


def _offset(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_PROJECT_ID:
        raise ValidationError(f"is {shown(value)}; use a whole number from 0 to {MAX_PROJECT_ID}")
    return value
