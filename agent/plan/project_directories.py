# SPDX-License-Identifier: MIT
"""Which project directories are to be made and which of their quotas set. Pure.

there       its group      action
nothing     known          MakeProjectDirectory, then SetProjectQuota
nothing     not known      none: the account waits for its group
a folder    known          SetProjectQuota, where none was set under these settings
other       whatever       none: it is left alone
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.core.host_actions import DirectoryHostAction, MakeProjectDirectory, SetProjectQuota
from agent.core.project_directories import (
    MAX_PROJECT_ID,
    NO_RECORD,
    DirectoryRecord,
    DirectoryRules,
    ProjectQuota,
    is_directory_name,
    quota_of,
)

WRONG_NAME = "its name cannot be a folder's ([a-z0-9_][a-z0-9_.-]*)"


@dataclass(frozen=True, slots=True)
class DirectoryFacts:
    """What was read for the directories of these accounts."""

    accounts: tuple[str, ...]
    # What is in the place of a directory, by account: empty for a folder, else why it is left alone.
    standing: Mapping[str, str]
    records: Mapping[str, DirectoryRecord]
    # The number of each group that may own directories, by its name.
    groups: Mapping[str, int]
    # The limits that the file system has of a directory's project, by account; unknown of `unrecorded` accounts that
    # are not in it.
    present: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PlannedChanges:
    """The actions of each account, and why others have none."""

    of_account: Mapping[str, tuple[DirectoryHostAction, ...]]
    troubles: Mapping[str, str]


def due(
    accounts: Iterable[str],
    standing: Mapping[str, str],
    records: Mapping[str, DirectoryRecord],
    rules: DirectoryRules,
) -> tuple[str, ...]:
    """Return the accounts with something to do or to log; those that are waiting, or failed, come last."""
    mark = rules.quota.mark() if rules.quota else ""
    found = [
        account
        for account in sorted(set(accounts))
        if not is_directory_name(account)
        or standing.get(account) != ""
        or (mark and records.get(account, NO_RECORD).quota != mark)
    ]
    return tuple(sorted(found, key=lambda account: bool(records.get(account, NO_RECORD).logged)))


def unrecorded(facts: DirectoryFacts, rules: DirectoryRules) -> Mapping[str, int]:
    """Return the project ids (groups) of directories that stand and whose quota we do not know, by account."""
    quota = rules.quota
    if quota is None:
        return {}
    ids = {
        account: gid + quota.id_offset
        for account in facts.accounts
        if is_directory_name(account)
        and facts.standing.get(account) == ""
        and _recorded(facts.records.get(account, NO_RECORD), quota) is None
        and (gid := facts.groups.get(rules.group_of(account))) is not None
    }
    return {account: project_id for account, project_id in ids.items() if project_id <= MAX_PROJECT_ID}


def changes(facts: DirectoryFacts, rules: DirectoryRules) -> PlannedChanges:
    """Return what is to be done for these accounts."""
    of_account: dict[str, tuple[DirectoryHostAction, ...]] = {}
    troubles: dict[str, str] = {}
    for account in facts.accounts:
        there, group = facts.standing.get(account), rules.group_of(account)
        gid = facts.groups.get(group)
        if not is_directory_name(account):
            troubles[account] = WRONG_NAME
        elif there:
            troubles[account] = f"{rules.path_of(account)} is left alone: {there}"
        elif gid is None:
            troubles[account] = f"group {group} is not known yet"
        else:
            actions, trouble = _of_account(account, gid, facts, rules)
            of_account |= {account: actions} if actions else {}
            troubles |= {account: trouble} if trouble else {}
    return PlannedChanges(of_account, troubles)


def _of_account(
    account: str, gid: int, facts: DirectoryFacts, rules: DirectoryRules
) -> tuple[tuple[DirectoryHostAction, ...], str]:
    quota, path, trouble = rules.quota, rules.path_of(account), ""
    project_id = gid + quota.id_offset if quota else 0
    if project_id > MAX_PROJECT_ID:
        trouble = (
            f"{path} gets no quota: project id {project_id} (gid {gid} and project_id_offset) is too large"
        )
        quota, project_id = None, 0
    found: list[DirectoryHostAction] = []
    if account not in facts.standing:
        found.append(
            MakeProjectDirectory(
                account=account,
                path=path,
                owner=rules.owner,
                group=rules.group_of(account),
                gid=gid,
                mode=f"{rules.mode:04o}",
                has_acl=rules.has_acl,
                project_id=0 if quota and quota.of_group else project_id,
                reason="the allocation has none",
            )
        )
    if quota is not None:
        record = facts.records.get(account, NO_RECORD)
        if found or record.quota != quota.mark():
            before = _recorded(record, quota)
            if before is None:
                before = () if found else facts.present.get(account)
            found.append(
                SetProjectQuota(
                    account=account,
                    path=path,
                    project_id=project_id,
                    mount_point=quota.mount_point,
                    before=before,
                    limits=quota.limits,
                    of_group=quota.of_group,
                    reason="the settings have changed" if record.quota else "none has been set yet",
                )
            )
    return tuple(found), trouble


def _recorded(record: DirectoryRecord, quota: ProjectQuota) -> tuple[tuple[str, str], ...] | None:
    """Return the limits that we set last; None where that is not known, or was in another file system or project."""
    before = quota_of(record.quota)
    return before.limits if before is not None and replace(before, limits=quota.limits) == quota else None
