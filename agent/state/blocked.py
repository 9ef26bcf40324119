# SPDX-License-Identifier: MIT
"""Whom we have blocked to remove them, until they are out: who comes back before that must be able to work again.

A user whom the site itself has blocked looks the same on the cluster, and stays so.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from agent.core.actions import Action, ObjectKind, objects_ended, objects_made
from agent.core.plans import Outcome
from agent.state import store
from agent.state.store import Db, Source, moment_text, recall

WHAT = "who is blocked"


def by_account(source: Source, offering_uuid: str) -> dict[str, frozenset[str]]:
    """Return users by account; none, with a warning, where it cannot be read."""
    found: dict[str, frozenset[str]] = {}
    for account, user in recall(source, WHAT, lambda db: _pairs(db, offering_uuid)) or ():
        found[account] = found.get(account, frozenset()) | {user}
    return found


def note(source: Source, offering_uuid: str, outcomes: Iterable[Outcome]) -> bool:
    """Write down what these outcomes change about it. False, with a warning, where that is not possible."""
    done = [outcome.action for outcome in outcomes if outcome.done]
    if not any(_blocked(action) or _free(action) for action in done):
        return True
    before = recall(source, WHAT, lambda db: _pairs(db, offering_uuid)) or frozenset()
    after = before
    for action in done:
        after = (after | _blocked(action)) - _free(action)
    if after == before:
        return True

    def work(db: Db) -> None:
        now = moment_text(datetime.now(UTC))
        db.run_many(
            "DELETE FROM blocked_members WHERE offering = ? AND account = ? AND user = ?",
            ((offering_uuid, *pair) for pair in before - after),
        )
        db.run_many(
            "INSERT OR IGNORE INTO blocked_members VALUES (?, ?, ?, ?)",
            ((offering_uuid, *pair, now) for pair in sorted(after - before)),
        )

    return store.note(source, WHAT, work)


def _pairs(db: Db, offering_uuid: str) -> frozenset[tuple[str, str]]:
    found = db.rows("SELECT account, user FROM blocked_members WHERE offering = ?", offering_uuid)
    return frozenset((row["account"], row["user"]) for row in found)


def _blocked(action: Action) -> frozenset[tuple[str, str]]:
    """Return accounts with the user who cannot submit there any more."""
    return frozenset((t.account, t.of) for t in objects_ended([action], ObjectKind.SUBMISSION) if t.of)


def _free(action: Action) -> frozenset[tuple[str, str]]:
    """Return accounts with the user who can submit there again, or is out."""
    free = (*objects_made([action], ObjectKind.SUBMISSION), *objects_ended([action], ObjectKind.MEMBER))
    return frozenset((thing.account, thing.of) for thing in free if thing.of)
