# SPDX-License-Identifier: MIT
"""Whose an account of the cluster is, by what this host knows: made by us, standing as ours when the offering was first
seen, or adopted by a person. Being named by Waldur makes nothing ours.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Set

from agent.core.account_names import NameRules, fold
from agent.core.actions import TREE
from agent.core.model import Part, Snapshot
from agent.core.ownership import Ledger


def own_unrecorded(
    snapshot: Snapshot, names: NameRules, foundations: Set[str], derived: Mapping[str, bool], ledger: Ledger
) -> frozenset[str]:
    """Return the accounts that stand as the offering's own and that the ledger does not have yet.

    When the offering is first seen: those with one of its prefixes in its hierarchy, that is below an account with a
    prefix, or with such accounts below; and those of `derived`. Where customers or projects have none, any account but
    those that all stand on may be above. Later only the latter, and only where a prefix distinguishes
    them from other people's: another head node of ours has made them. `derived`: accounts that have the name which this
    agent gives them, at the place where it puts them; whether their name has a prefix of its own. `foundations`: what
    all accounts stand on.
    """
    if not snapshot.complete >= TREE:
        return frozenset()
    found = {name for name, has_prefix in derived.items() if has_prefix or ledger.is_first}
    if ledger.is_first:
        prefixes = tuple(prefix for prefix in map(fold, prefixes_of(names)) if prefix)
        above = prefixes if names.customer_prefix and names.project_prefix else ("",)
        for name, account in snapshot.accounts.items():
            if not name.startswith(prefixes):
                continue
            parent = account.parent or ""
            is_below = parent in snapshot.accounts and parent not in foundations and parent.startswith(above)
            if is_below or any(child.startswith(prefixes) for child in snapshot.children_of(name)):
                found.add(name)
    found = {name for name in found if not ledger.is_ours(name)}
    return frozenset(found & snapshot.accounts.keys() - foundations - ledger.made_by_others.keys())


def prefixes_of(names: NameRules) -> tuple[str, str, str]:
    return names.customer_prefix, names.project_prefix, names.allocation_prefix


def adoption_key(account: str) -> str:
    """Return what an approval to adopt an account is for."""
    return json.dumps(["adopt", {"account": account}], ensure_ascii=False)


def described(account: str, snapshot: Snapshot, ledger: Ledger) -> str:
    """Return what an account has, for the person who decides whether it is the offering's."""
    standing = snapshot.accounts.get(account)
    members = f"{len(snapshot.users_of(account))} members" if snapshot.complete >= TREE else "members unknown"
    limits = ", ".join(f"{n}={v}" for n, v in sorted(standing.limits.items())) if standing else ""
    if Part.JOBS in snapshot.complete and account in snapshot.active_jobs:
        jobs = f"{snapshot.active_jobs[account]} active jobs"
    else:
        jobs = "jobs unknown"
    children = len(snapshot.children_of(account))
    words = [
        f"adopt account {account}",
        f"below {standing.parent or 'nothing'}" if standing else "not read",
        members,
        f"limits {limits or 'none'}",
        jobs,
        *([f"{children} accounts below it"] if children else []),
        *([f"an account of {ledger.made_by_others[account]}"] if account in ledger.made_by_others else []),
    ]
    return ", ".join(words)


def adopted(keys: Iterable[str]) -> frozenset[str]:
    """Return the accounts that approvals of these keys adopt."""
    found = set()
    for key in keys:
        kind, values = json.loads(key)
        if kind == "adopt":
            found.add(str(values["account"]))
    return frozenset(found)
