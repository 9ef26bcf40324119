# SPDX-License-Identifier: MIT
"""Whom we have blocked to remove them, until they are out: who comes back before that must be able to work again.

Kept in `state_dir`, because a user whom the site itself has blocked looks the same on the cluster, and stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.core.actions import Action, Kind
from agent.core.plans import Outcome
from agent.run.site import Site
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable


def by_account(site: Site) -> dict[str, frozenset[str]]:
    """Users by account; nobody where the file cannot be read."""
    try:
        document = state_files.read_json(_path(site)) or {}
    except Unreadable:
        return {}
    return {
        account: frozenset(map(str, users)) for account, users in document.items() if isinstance(users, list)
    }


def note(site: Site, outcomes: Iterable[Outcome]) -> None:
    """What these outcomes change about it."""
    done = [outcome.action for outcome in outcomes if outcome.done]
    if not any(_blocked(action) or _free(action) for action in done):
        return
    before = by_account(site)
    pairs = {(account, user) for account, users in before.items() for user in users}
    for action in done:
        pairs = (pairs | _blocked(action)) - _free(action)
    after: dict[str, list[str]] = {}
    for account, user in sorted(pairs):
        after.setdefault(account, []).append(user)
    if after != {account: sorted(users) for account, users in before.items()}:
        state_files.write_json(site.state_dir, _path(site), after)


def _blocked(action: Action) -> frozenset[tuple[str, str]]:
    """Accounts with the user who cannot submit there any more."""
    ended = action.things(action.ends)
    return frozenset((t.account, t.of) for t in ended if t.kind is Kind.SUBMISSION and t.of)


def _free(action: Action) -> frozenset[tuple[str, str]]:
    """Accounts with the user who can submit there again, or is out."""
    made, ended = action.things(action.makes), action.things(action.ends)
    can = [thing for thing in made if thing.kind is Kind.SUBMISSION and thing.of]
    return frozenset((t.account, t.of) for t in (*can, *(t for t in ended if t.kind is Kind.MEMBER)))


def _path(site: Site) -> Path:
    return site.state_dir / "blocked" / f"{site.offering.uuid}.json"
