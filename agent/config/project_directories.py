# SPDX-License-Identifier: MIT
"""`backend_settings.project_directory`: where the directories of allocations are made, and their Lustre quota: of a
project, or of the group.

No value here stops the agent. What cannot be used is a warning that `config-check` makes an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import ValidationError

from agent.config.field_types import Octal, Text, choice, name_text, whole
from agent.config.findings import Findings, key_path, without_effect
from agent.config.homes import MAX_COUNT, OF_USERS, folder, is_out_of_order
from agent.config.keys import WrongValue, key, keys_of
from agent.core.project_directories import MAX_PROJECT_ID, DirectoryRules, ProjectQuota

NONE_MADE = WrongValue(fallback="no project directories are made")
NO_QUOTA = WrongValue(fallback="project directories are made without a quota")
QUOTA_TYPES = ("project", "group")
BY_ACCOUNT = "project_id"
SET_GROUP_ID = 0o2000
OTHERS_WRITE = 0o002


def _base_path(place: str) -> str:
    if not folder(place).strip("/"):
        raise ValidationError("the root folder cannot hold project directories")
    return place.rstrip("/")


# A number that YAML has read as octal (0770 is 504) shows by an owner without all rights.
MODE = Octal(
    'write octal digits in quotes, such as "770": the owner has all rights',
    allowed=0o2777, needed=0o700, bare=str,
)  # fmt: skip


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class LustreQuotaKeys:
    mount_point: str = key("/valhalla", "the file system", of=Text(folder))
    block_softlimit: int | None = key(None, "KiB, 0: no limit", of=whole(0, MAX_COUNT))
    block_hardlimit: int | None = key(None, "KiB, 0: no limit", of=whole(0, MAX_COUNT))
    inode_softlimit: int | None = key(None, "files, 0: no limit", of=whole(0, MAX_COUNT))
    inode_hardlimit: int | None = key(None, "files, 0: no limit", of=whole(0, MAX_COUNT))
    quota_type: str = key(QUOTA_TYPES[0], "`project`, or `group`: see below", of=choice(*QUOTA_TYPES))
    project_id_offset: int = key(0, "the project id is the group's number and this, at most 4294967294",
        of=whole(0, MAX_PROJECT_ID))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDirectoryKeys:
    enabled: bool = key(False, "make the directories")
    base_path: str = key("/valhalla/projects", "the folder of all of them. It must be there and belong to root, and "
        "no other user may write in it. The agent does not make it: a file system that is not mounted would get "
        "directories below its mount point", of=Text(_base_path))
    owner: str = key("nobody", "the user who owns a directory, known to this head node", of=name_text())
    permissions: int = key(0o770, "octal digits in quotes; the owner has all rights", of=MODE, usual='`"770"`',
        usual_value="770")
    set_gid: bool = key(True, "what is made inside belongs to the group")
    set_acl: bool = key(True, "an ACL with all rights for the group, also on what is made inside, whatever umask its "
        "members have. A file system without ACLs is named in the log")
    group_owner_source: str = key(BY_ACCOUNT, "`project_id`: the group named like the account; anything else: "
        "`group_name`")
    group_name: str = key("", "the group, where `group_owner_source` says so", usual="the account")
    lustre_quota: LustreQuotaKeys | None = key(None, "its quota, see below", wrong=NO_QUOTA)
# fmt: on


def read_project_directories(
    values: ProjectDirectoryKeys | None, settings: Mapping[Any, Any], settings_path: str, findings: Findings
) -> DirectoryRules | None:
    """Return the rules for project directories, None where none are wanted; `settings`: what is written of
    `backend_settings`.
    """
    section, path = settings.get("project_directory"), key_path(settings_path, "project_directory")
    if values is None:
        return None
    if not values.enabled:
        keys = keys_of(ProjectDirectoryKeys).keys() - {"enabled"}
        findings.add(without_effect(section, keys, path, "`enabled: true` is not written"))
        return None
    if values.permissions & OTHERS_WRITE:
        findings.warn(key_path(path, "permissions"), "everybody may write into project directories")
    group_name = values.group_name
    if values.group_owner_source == BY_ACCOUNT:
        why = "the group is the account's own. Another needs `group_owner_source: group_name` next to it"
        findings.add(without_effect(section, ("group_name",), path, why))
        group_name = ""
    quota_path = key_path(path, "lustre_quota")
    quota = _quota(values.lustre_quota, quota_path, findings)
    if quota is not None and group_name:
        sentence = (
            f"the quota is that of a group, or of its number, and all directories belong to group {group_name}: "
            f"they would share the quota of one. Set group_owner_source to {BY_ACCOUNT}, or leave lustre_quota out"
        )
        findings.refuse(quota_path, sentence, NO_QUOTA)
        quota = None
    if quota is not None and quota.of_group and not values.set_gid:
        sentence = "with `quota_type: group` only files of the group count: set_gid makes them so"
        findings.warn(key_path(path, "set_gid"), sentence)
    return DirectoryRules(
        base_path=values.base_path,
        owner=values.owner,
        mode=values.permissions | (SET_GROUP_ID if values.set_gid else 0),
        has_acl=values.set_acl,
        group_name=group_name,
        quota=quota,
    )


def _quota(values: LustreQuotaKeys | None, path: str, findings: Findings) -> ProjectQuota | None:
    if values is None:
        return None
    of_group = values.quota_type == QUOTA_TYPES[1]
    if of_group and values.project_id_offset:
        why = "it has no effect: with `quota_type: group` there is no project id"
        findings.warn(key_path(path, "project_id_offset"), why)
    limits: Mapping[str, Any] = {key: getattr(values, key) for key in OF_USERS}
    if is_out_of_order(limits, path, findings, NO_QUOTA):
        return None
    found = tuple((OF_USERS[key], str(limit)) for key, limit in limits.items() if limit is not None)
    if not found:
        findings.refuse(path, f"no limit is set: give one of {', '.join(OF_USERS)}", NO_QUOTA)
        return None
    return ProjectQuota(values.mount_point, found, 0 if of_group else values.project_id_offset, of_group)
