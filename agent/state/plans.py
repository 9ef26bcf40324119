# SPDX-License-Identifier: MIT
"""Held plans, approvals, pauses, and what a mode leaves out: what the policy remembers.

What must be known or written raises StateError: without it nothing is changed on the cluster. The methods take part
in a transaction that is open where a shelf was made from one.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from sqlite3 import Row
from typing import Any

from agent.config.model import Offering
from agent.core.errors import StateUnreadable
from agent.state import journal
from agent.state.store import (
    Db,
    Source,
    Value,
    forget_copied_back,
    is_copied_back,
    moment_from,
    moment_text,
    note,
    reading,
    recall,
    stamp,
    writing,
)

log = logging.getLogger(__name__)

LEFT_OUT_SHOWN = 200
# One listing that is empty by mistake forgets nothing; one that stays empty for so long is believed.
BELIEVED_AFTER = timedelta(hours=1)
NEVER = datetime.min.replace(tzinfo=UTC)


class Kept(Enum):
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
class LeftOut:
    """`count` actions that a mode leaves out, the first of them as `lines`, and `since` when it is these."""

    since: str = ""
    count: int = 0
    lines: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"since": self.since, "count": self.count, "lines": list(self.lines)}


@dataclass(frozen=True, slots=True)
class Shelf:
    """What the policy remembers of one offering and mode."""

    source: Source
    offering: Offering
    mode: str

    @property
    def _which(self) -> tuple[str, str]:
        return self.offering.uuid, self.mode

    def waiting(self) -> list[HeldRow]:
        """Return the held plans, oldest first. Raises StateError."""
        with reading(self.source) as db:
            found = db.rows(
                "SELECT * FROM held_plans WHERE offering = ? AND mode = ? ORDER BY since, id", *self._which
            )
        return [_held(row) for row in found]

    def hold(self, plan: HeldRow) -> Kept:
        """Write a plan down, or that it still waits. A sticky one goes on to be about all that it was ever held for: a
        pass may see a part of it only.

        Where it cannot be written it is UNWRITTEN, with a warning; in a transaction that is open, StateError.
        """
        values: list[Value] = [plan.cluster, plan.scope, plan.reason, *_lists(plan), int(plan.sticky)]

        def work(db: Db) -> None:
            now = moment_text(datetime.now(UTC))
            if self._is_held(db, plan.id):
                before = next(
                    each for each in Shelf(db, self.offering, self.mode).waiting() if each.id == plan.id
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
            return Kept.KNOWN
        return Kept.NEW if is_written else Kept.UNWRITTEN

    def _is_held(self, db: Db, plan: str) -> bool:
        sql = "SELECT 1 FROM held_plans WHERE offering = ? AND mode = ? AND id = ?"
        return db.row(sql, *self._which, plan) is not None

    def keep_only(self, plans: Mapping[str, Set[str]]) -> list[str]:
        """Drop what a pass over everything did not make again, and return the ids. `plans`: keys of its plans by id.

        A sticky plan that is no part of another one is dropped when no pass has made it for an hour: one answer of
        Waldur that lacks something must not release it. Raises StateError where what waits cannot be read.
        """
        made = frozenset(key for keys in plans.values() for key in keys)
        recent = datetime.now(UTC) - BELIEVED_AFTER
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
        return note(self.source, "what waits no more", lambda db: self._delete(db, "held_plans", "id", plan))

    def approve(self, plan: str, *, expires: datetime, by: str) -> None:
        """Let a plan go as it waits now. Raises StateError: then nothing is approved."""
        with writing(self.source) as db:
            drop_copied_back(db)
            held = next((p for p in Shelf(db, self.offering, self.mode).waiting() if p.id == plan), None)
            db.run(
                "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                *(*self._which, plan, by, moment_text(datetime.now(UTC)), moment_text(expires)),
                _json([]),
                _json(dict(held.figures) if held else {}),
            )

    def revoke(self, plan: str) -> bool:
        """Return whether there was an approval. Raises StateError: then it stays."""
        with writing(self.source) as db:
            return self._delete(db, "approvals", "plan", plan) > 0

    def withdraw(self, plan: str) -> bool:
        """Drop the approval of a plan that has become another one than was shown; True where there was one."""
        return any(each.plan == plan for each in self.approvals()) and self.revoke(plan)

    def approvals(self) -> list[Approval]:
        """Return those that have not expired; none where the file is an old copy. Raises StateError."""
        with reading(self.source) as db:
            if is_copied_back(db):
                return []
            found = db.rows(
                "SELECT * FROM approvals WHERE offering = ? AND mode = ? AND expires > ? ORDER BY approved, plan",
                *self._which,
                moment_text(datetime.now(UTC)),
            )
        return [_approval(row) for row in found]

    def begin(self, plan: str, keys: Iterable[str]) -> bool:
        """Note that a pass begins with an approved plan; False when it is noted already, is part of one, or cannot be
        noted: what is left of it after a cut is held once more then.
        """
        approval = next((each for each in self.approvals() if each.plan == plan), None)
        if approval is None or approval.begun:
            return False
        begun = _json(sorted(keys))
        sql = "UPDATE approvals SET begun = ? WHERE offering = ? AND mode = ? AND plan = ?"
        what = f"the begin of plan {plan}"
        return note(self.source, what, lambda db: db.run(sql, begun, *self._which, plan))

    def close_approvals(self, *, still: Mapping[str, Iterable[str]]) -> None:
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
            note(self.source, what, lambda db: [self._delete(db, "approvals", "plan", plan) for plan in over])

    def note_answer(self, *, is_empty: bool) -> None:
        """Write down since when Waldur lists nothing, or that it lists something. Where that fails is a warning."""
        since = recall(self.source, "an empty answer", self._empty_row)
        if is_empty == (since is not None):
            return
        now = moment_text(datetime.now(UTC))
        note(
            self.source,
            "an empty answer",
            lambda db: (
                db.run("INSERT INTO empty_answers VALUES (?, ?, ?)", *self._which, now)
                if is_empty
                else db.run("DELETE FROM empty_answers WHERE offering = ? AND mode = ?", *self._which)
            ),
        )

    def believes_empty(self) -> bool:
        """Return whether Waldur has listed nothing for so long that it is no mistake. Raises StateError."""
        with reading(self.source) as db:
            row = self._empty_row(db)
        return row is not None and datetime.now(UTC) - moment_from(row["since"]) > BELIEVED_AFTER

    def _empty_row(self, db: Db) -> Row | None:
        return db.row("SELECT since FROM empty_answers WHERE offering = ? AND mode = ?", *self._which)

    def leave_out(self, lines: Sequence[str], *, meant: str) -> bool:
        """Write down what is refused, sorted. True when it is not what was refused before; `meant` tells that, whatever
        the figures in the lines.
        """
        shown = _json(list(lines[:LEFT_OUT_SHOWN]))
        before = recall(self.source, "what is left out", self._left_out_row)
        known = (before["count"], before["meant"]) if before else (0, meant)
        is_news = known != (len(lines), meant)
        if not is_news and (before is None or before["lines"] == shown):
            return False
        since = before["since"] if before and not is_news else stamp(datetime.now(UTC))
        row = (*self._which, since, len(lines), meant, shown)
        note(
            self.source,
            "what is left out",
            lambda db: db.run("INSERT OR REPLACE INTO left_out VALUES (?, ?, ?, ?, ?, ?)", *row),
        )
        return is_news and bool(lines)

    def left_out(self) -> LeftOut:
        """Raises StateError."""
        with reading(self.source) as db:
            row = self._left_out_row(db)
        return LeftOut(row["since"], row["count"], tuple(json.loads(row["lines"]))) if row else LeftOut()

    def _left_out_row(self, db: Db) -> Row | None:
        return db.row("SELECT * FROM left_out WHERE offering = ? AND mode = ?", *self._which)

    def _delete(self, db: Db, table: str, column: str, plan: str) -> int:
        return db.run(
            f"DELETE FROM {table} WHERE offering = ? AND mode = ? AND {column} = ?",  # noqa: S608  our own names
            *self._which,
            plan,
        )


def shelves(source: Source, offerings: Iterable[Offering]) -> list[Shelf]:
    """Return the shelves of these offerings on which something waits or is approved. Raises StateError."""
    with reading(source) as db:
        found = {
            (row["offering"], row["mode"])
            for row in db.rows(
                "SELECT offering, mode FROM held_plans UNION SELECT offering, mode FROM approvals"
            )
        }
    return [
        Shelf(source, offering, mode)
        for offering in offerings
        for uuid, mode in sorted(found)
        if uuid == offering.uuid
    ]


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
    journal.note(db.path.parent, None, text, by=operator())
    return True


def pause(source: Source, offering: Offering, *, by: str, reason: str = "") -> None:
    """Raises StateError: then nothing is changed."""
    with writing(source) as db:
        now = stamp(datetime.now(UTC))
        db.run("INSERT OR REPLACE INTO pauses VALUES (?, ?, ?, ?)", offering.uuid, by, reason, now)


def resume(source: Source, offering: Offering) -> None:
    """Raises StateError: then it stays paused."""
    with writing(source) as db:
        db.run("DELETE FROM pauses WHERE offering = ?", offering.uuid)


def pause_note(source: Source, offering: Offering) -> str:
    """Who paused the offering by command, and since when; empty when nobody has. Not knowing counts as paused. Raises
    StateBusy.
    """
    try:
        with reading(source) as db:
            row = db.row("SELECT * FROM pauses WHERE offering = ?", offering.uuid)
    except StateUnreadable as error:
        return f"perhaps: {error}"
    if row is None:
        return ""
    reason = f" ({row['reason']})" if row["reason"] else ""
    return f"by {row['by']} since {row['since']}{reason}"


def operator() -> str:
    """Who runs this command: behind sudo, too."""
    try:
        own = getpass.getuser()
    except (KeyError, OSError):
        own = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    return f"{behind} as {own}" if behind and behind != own else own


def _held(row: Row) -> HeldRow:
    return HeldRow(
        id=row["id"],
        scope=row["scope"],
        reason=row["reason"],
        cluster=row["cluster"],
        lines=tuple(json.loads(row["lines"])),
        keys=frozenset(json.loads(row["keys"])),
        figures=json.loads(row["figures"]),
        sticky=bool(row["sticky"]),
        offering=row["offering"],
        mode=row["mode"],
        since=moment_from(row["since"]),
        seen=moment_from(row["seen"]),
    )


def _lists(plan: HeldRow) -> tuple[str, str, str]:
    return _json(list(plan.lines)), _json(sorted(plan.keys)), _json(dict(plan.figures))


def _approval(row: Row) -> Approval:
    return Approval(
        plan=row["plan"],
        by=row["by"],
        approved=moment_from(row["approved"]),
        expires=moment_from(row["expires"]),
        begun=frozenset(json.loads(row["begun"])),
        figures=json.loads(row["figures"]),
    )


def _json(value: Any) -> str:
    """In ASCII: text that is not Unicode comes back as it was."""
    return json.dumps(value)
