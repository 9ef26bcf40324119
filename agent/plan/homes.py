# SPDX-License-Identifier: MIT
"""Which homes are to be made and which quotas set: once per user, and again when the settings change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.core.homes import (
    NOTHING,
    Home,
    HomeRecord,
    HomeRules,
    QuotaProvider,
    is_username,
    quota_of,
)
from agent.core.host_actions import HomeAction, MakeHome, SetQuota


@dataclass(frozen=True, slots=True)
class UsersByWork:
    """Users by what there is to do: nothing, something, or never anything because of their name."""

    kept: tuple[str, ...]
    due: tuple[str, ...]
    refused: tuple[str, ...]


def sort(usernames: Iterable[str], records: Mapping[str, HomeRecord], rules: HomeRules) -> UsersByWork:
    """Return the users by what there is to do. Those who failed before come last: no other waits for them."""
    kept, due, refused = [], [], []
    for name in sorted(set(usernames)):
        if not is_username(name):
            refused.append(name)
        elif is_done(records.get(name, NOTHING), rules):
            kept.append(name)
        else:
            due.append(name)
    due.sort(key=lambda name: records.get(name, NOTHING).failures)
    return UsersByWork(tuple(kept), tuple(due), tuple(refused))


def is_done(record: HomeRecord, rules: HomeRules) -> bool:
    quota = rules.quota_mark()
    return record.home == rules.home_mark() and (not quota or record.quota == quota)


def actions(
    home: Home, record: HomeRecord, rules: HomeRules, *, again: bool = False
) -> tuple[HomeAction, ...]:
    """Return what is to be done for one user, in this order; nothing for a home in trouble. `again`: the quota is set,
    whatever the record says of it.
    """
    if home.trouble:
        return ()
    found: list[HomeAction] = []
    if not home.exists:
        found.append(
            MakeHome(user=home.user, path=home.made_at, umask=rules.umask, reason="there is no home yet")
        )
    if rules.quota is not None and (again or record.quota != rules.quota_mark()):
        reason = "the settings have changed" if record.quota else "none has been set yet"
        quota, before = rules.quota, quota_of(record.quota)
        # Limits of another provider or file system do not compare.
        is_alike = before is not None and replace(before, limits=quota.limits) == quota
        found.append(
            SetQuota(
                user=home.user,
                provider=quota.provider.value,
                place=home.path if quota.provider is QuotaProvider.CEPH_XATTR else quota.mount_point,
                before=before.limits if before is not None and is_alike else (),
                limits=quota.limits,
                reason=reason,
            )
        )
    return tuple(found)
