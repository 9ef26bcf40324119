# SPDX-License-Identifier: MIT
"""Plans that wait for a person, and what people have approved of them, by offering and mode.

What must be known or written raises StateError: without it nothing is changed on the cluster. The methods take part
in a transaction that is open where an object was made from one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from sqlite3 import Row
from typing import Any

from agent.config.model import Offering
from agent.state import columns, empty_answers, journal
from agent.state.store import (
    AHEAD_AT_MOST,
    Db,
    Source,
    Value,
    forget_copied_back,
    is_copied_back,
    moment_text,
    note,
    reading,
    recall,
    stamp,
    writing,
)

log = logging.getLogger(__name__)

NEVER = datetime.min.replace(tzinfo=UTC)


class HoldResult(Enum):
    """What became of a plan that is to be written down; UNWRITTEN: nothing tells of it."""

    NEW = auto()
    KNOWN = auto()
    UNWRITTEN = auto()


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A plan that waits for a person. `lines`: its actions for people; `keys` tell them apart. `figures`: the figures
    that get less, by name, of which an approval is for no smaller ones. `sticky`: it waits for a person for as
    long as any of it is planned. `since` and `seen`: when it was first and last held.
    """

    id: str
    scope: str
    reason: str
    cluster: str
    lines: tuple[str, ...]
    keys: frozenset[str]
    figures: Mapping[str, str] = field(default_factory=dict)
    sticky: bool = False
    offering: str = ""
    mode: str = ""
    since: datetime = NEVER
    seen: datetime = NEVER

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "offering": self.offering,
            "mode": self.mode,
            "cluster": self.cluster,
            "scope": self.scope,
            "reason": self.reason,
            "sticky": self.sticky,
            "since": stamp(self.since),
            "seen": stamp(self.seen),
            "actions": list(self.lines),
        }


@dataclass(frozen=True, slots=True)
class Approval:
    """`begun`: keys of the plan's actions, once a pass has begun with them."""

    plan: str
    by: str
    approved: datetime
    expires: datetime
    begun: frozenset[str]
    figures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldPlans:
    """The plans of one offering and mode that wait for a person."""

    source: Source
    offering: Offering
    mode: str

    @property
    def approvals(self) -> Approvals:
        """Return what people have approved of these."""
        return Approvals(self.source, self.offering, self.mode)

    @property
    def _which(self) -> tuple[str, str]:
        return self.offering.uuid, self.mode

    def waiting(self) -> list[HeldRow]:
        """Return the held plans, oldest first. Raises StateError."""
        with reading(self.source) as db:
            found = db.rows(
                "SELECT * FROM held_plans WHERE offering = ? AND mode = ? ORDER BY since, id", *self._which
            )
        return [_held_row(row) for row in found]

    def hold(self, plan: HeldRow) -> HoldResult:
        """Write a plan down, or that it still waits. A sticky one goes on to be about all that it was ever held for: a
        pass may see a part of it only.

        Where it cannot be written it is UNWRITTEN, with a warning; in a transaction that is open, StateError.
        """
        values: list[Value] = [plan.cluster, plan.scope, plan.reason, *_lists(plan), int(plan.sticky)]

        def work(db: Db) -> None:
            now = moment_text(datetime.now(UTC))
            if self._is_held(db, plan.id):
                before = next(
                    each for each in HeldPlans(db, self.offering, self.mode).waiting() if each.id == plan.id
                )
                if before.sticky:
                    values[4] = _json(sorted(plan.keys | before.keys))
                db.run(
                    "UPDATE held_plans SET cluster = ?, scope = ?, reason = ?, lines = ?, keys = ?, figures = ?, "
                    "sticky = max(sticky, ?), seen = ? WHERE offering = ? AND mode = ? AND id = ?",
                    *(*values, now, *self._which, plan.id),
                )
            else:
                db.run(
                    "INSERT INTO held_plans (cluster, scope, reason, lines, keys, figures, sticky, seen, offering, "
                    "mode, id, since) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    *(*values, now, *self._which, plan.id, now),
                )

        what = f"the held plan {plan.id}"
        is_known = recall(self.source, what, lambda db: self._is_held(db, plan.id))
        is_written = note(self.source, what, work)
        if is_known:
            return HoldResult.KNOWN
        return HoldResult.NEW if is_written else HoldResult.UNWRITTEN

    def _is_held(self, db: Db, plan: str) -> bool:
        sql = "SELECT 1 FROM held_plans WHERE offering = ? AND mode = ? AND id = ?"
        return db.row(sql, *self._which, plan) is not None

    def keep_only(self, plans: Mapping[str, Set[str]]) -> list[str]:
        """Drop what a pass over everything did not make again, and return the ids. `plans`: keys of its plans by id.

        A sticky plan that is no part of another one is dropped when no pass has made it for an hour: one answer of
        Waldur that lacks something must not release it. Raises StateError where what waits cannot be read.
        """
        made = frozenset(key for keys in plans.values() for key in keys)
        now = datetime.now(UTC)
        recent = now - empty_answers.BELIEVED_AFTER
        if any(each.seen > now + AHEAD_AT_MOST for each in self.waiting()):
            # Of a clock that was ahead: the hour begins now.
            sql = "UPDATE held_plans SET seen = ? WHERE offering = ? AND mode = ? AND seen > ?"
            values = (moment_text(now), *self._which, moment_text(now))
            note(self.source, "when plans were held last", lambda db: db.run(sql, *values))
        gone = [
            each.id
            for each in self.waiting()
            if each.id not in plans and not (each.sticky and each.seen > recent and not each.keys <= made)
        ]
        for plan in gone:
            self.drop(plan)
        return gone

    def drop(self, plan: str) -> bool:
        """Forget a plan that waits no more. False, with a warning, where it stays on the list."""
        sql = "DELETE FROM held_plans WHERE offering = ? AND mode = ? AND id = ?"
        return note(self.source, "what waits no more", lambda db: db.run(sql, *self._which, plan))


@dataclass(frozen=True, slots=True)
class Approvals:
    """The approvals of held plans of one offering and mode."""

    source: Source
    offering: Offering
    mode: str

    @property
    def _which(self) -> tuple[str, str]:
        return self.offering.uuid, self.mode

    def open(self) -> list[Approval]:
        """Return those that have not expired; none where the file is an old copy. Those of a clock that was ahead are
        left out: nobody knows when they end. Raises StateError.
        """
        with reading(self.source) as db:
            if is_copied_back(db):
                return []
            found = db.rows(
                "SELECT * FROM approvals WHERE offering = ? AND mode = ? AND expires > ? AND approved <= ? "
                "ORDER BY approved, plan",
                *self._which,
                moment_text(datetime.now(UTC)),
                moment_text(datetime.now(UTC) + AHEAD_AT_MOST),
            )
        return [_approval(row) for row in found]

    def approve(self, plan: str, *, expires: datetime, by: str) -> None:
        """Let a plan go as it waits now. Raises StateError: then nothing is approved."""
        with writing(self.source) as db:
            drop_copied_back(db)
            held = next((p for p in HeldPlans(db, self.offering, self.mode).waiting() if p.id == plan), None)
            db.run(
                "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(*self._which, plan, by, moment_text(datetime.now(UTC)), moment_text(expires)),
                _json([]),
                _json(dict(held.figures) if held else {}),
            )

    def revoke(self, plan: str) -> bool:
        """Return whether there was an approval. Raises StateError: then it stays."""
        with writing(self.source) as db:
            return self._delete(db, plan) > 0

    def withdraw(self, plan: str) -> bool:
        """Drop the approval of a plan that has become another one than was shown; True where there was one."""
        return any(each.plan == plan for each in self.open()) and self.revoke(plan)

    def begin(self, plan: str, keys: Iterable[str]) -> bool:
        """Note that a pass begins with an approved plan; False when it is noted already, is part of one, or cannot be
        noted: what is left of it after a cut is held once more then.
        """
        approval = next((each for each in self.open() if each.plan == plan), None)
        if approval is None or approval.begun:
            return False
        begun = _json(sorted(keys))
        sql = "UPDATE approvals SET begun = ? WHERE offering = ? AND mode = ? AND plan = ?"
        what = f"the begin of plan {plan}"
        return note(self.source, what, lambda db: db.run(sql, begun, *self._which, plan))

    def close(self, *, still: Mapping[str, Iterable[str]]) -> None:
        """Drop approvals that have expired, or whose plan a pass over everything did not make again. `still`: the
        keys of the plans that it made, by id. One that cannot be dropped is a warning.
        """

        def is_over(approval: Approval) -> bool:
            is_part = any(set(keys) <= approval.begun for keys in still.values())
            return approval.expires <= datetime.now(UTC) or not (approval.plan in still or is_part)

        with reading(self.source) as db:
            rows = db.rows("SELECT * FROM approvals WHERE offering = ? AND mode = ?", *self._which)
        over = [approval.plan for approval in map(_approval, rows) if is_over(approval)]
        if over:
            what = "that approvals are over"
            note(self.source, what, lambda db: [self._delete(db, plan) for plan in over])

    def _delete(self, db: Db, plan: str) -> int:
        return db.run(
            "DELETE FROM approvals WHERE offering = ? AND mode = ? AND plan = ?", *self._which, plan
        )


def all_held(source: Source, offerings: Iterable[Offering]) -> list[HeldPlans]:
    """Return those of these offerings in which a plan waits or is approved, by offering and mode. Raises StateError."""
    with reading(source) as db:
        found = {
            (row["offering"], row["mode"])
            for row in db.rows(
                "SELECT offering, mode FROM held_plans UNION SELECT offering, mode FROM approvals"
            )
        }
    return [
        HeldPlans(source, offering, mode)
        for offering in offerings
        for uuid, mode in sorted(found)
        if uuid == offering.uuid
    ]


def is_clear(db: Db, offering: Offering, mode: str) -> bool:
    """Return whether nothing is held, approved or left out, and no empty answer noted. Raises StateError."""
    return not db.row(
        "SELECT 1 FROM held_plans WHERE offering = ?1 AND mode = ?2 "
        "UNION ALL SELECT 1 FROM approvals WHERE offering = ?1 AND mode = ?2 "
        "UNION ALL SELECT 1 FROM left_out WHERE offering = ?1 AND mode = ?2 AND count > 0 "
        "UNION ALL SELECT 1 FROM empty_answers WHERE offering = ?1 AND mode = ?2",
        offering.uuid,
        mode,
    )


def drop_copied_back(db: Db) -> bool:
    """Drop all approvals where the state file is an old copy that somebody put back: they may have been used or revoked
    since. Told once. The gate asks this first. Raises StateError.
    """
    if not is_copied_back(db):
        return False
    count = db.run("DELETE FROM approvals")
    forget_copied_back(db)
    text = (
        f"the state file {db.path} is older than the journal: a copy was put back. All approvals are dropped "
        f"({count}); pauses, held plans and budgets are those of the copy"
    )
    log.warning("%s", text)
    journal.note(db.path.parent, None, text, by=journal.operator())
    return True


def _held_row(row: Row) -> HeldRow:
    return HeldRow(
        id=row["id"],
        scope=row["scope"],
        reason=row["reason"],
        cluster=row["cluster"],
        lines=columns.texts(row, "lines"),
        keys=frozenset(columns.texts(row, "keys")),
        figures=columns.mapping(row, "figures", str),
        sticky=bool(row["sticky"]),
        offering=row["offering"],
        mode=row["mode"],
        since=columns.moment(row, "since"),
        seen=columns.moment(row, "seen"),
    )


def _lists(plan: HeldRow) -> tuple[str, str, str]:
    return _json(list(plan.lines)), _json(sorted(plan.keys)), _json(dict(plan.figures))


def _approval(row: Row) -> Approval:
    return Approval(
        plan=row["plan"],
        by=row["by"],
        approved=columns.moment(row, "approved"),
        expires=columns.moment(row, "expires"),
        begun=frozenset(columns.texts(row, "begun")),
        figures=columns.mapping(row, "figures", str),
    )


def _json(value: Any) -> str:
    """In ASCII: text that is not Unicode comes back as it was."""
    return json.dumps(value)
