# SPDX-License-Identifier: MIT
"""Plans that wait for a person, and what people have approved of them, by offering and mode.

What must be known or written raises StateError: without it nothing is changed on the cluster. The methods take part
in a transaction that is open where an object was made from one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from sqlite3 import Row
from typing import Any

from agent.config.model import Offering
from agent.core.bounded_json import read_json
from agent.core.errors import SiteAgentError
from agent.core.policy import SHORT_ID
from agent.core.printable import shortlist
from agent.state import columns, empty_answers, journal
from agent.state.hints import SKIPPED
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
# In place of the moment at which an action was last planned.
DONE = ""


# Of added actions that a refusal names, and how long a mark of one is.
ADDED_NAMED = 5
MARK = 16


class PlanChanged(SiteAgentError):
    """A held plan is not the one that the person has seen, or is approved already. Nothing is approved: look again."""


class HoldResult(Enum):
    """What became of a plan that is to be written down; UNWRITTEN: it is recorded nowhere."""

    NEW = auto()
    KNOWN = auto()
    UNWRITTEN = auto()


@dataclass(frozen=True, slots=True)
class HeldRow:
    """A plan that waits for a person."""

    id: str
    scope: str
    reason: str
    cluster: str
    # What the last pass planned of it, for people, by the keys of the actions: an approval is for these.
    lines: Mapping[str, str]
    # The figures that get less, by name, of which an approval is for no smaller ones.
    figures: Mapping[str, str] = field(default_factory=dict)
    # No pass over everything has seen it.
    is_apart: bool = False
    # It waits for a person also when the numbers change.
    is_lasting: bool = True
    offering: str = ""
    mode: str = ""
    # When it was first held.
    since: datetime = NEVER
    # When it was last held.
    seen: datetime = NEVER
    # All actions that wait under it, with the moment at which each was last planned, as text.
    seen_keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.seen_keys)

    @property
    def short_id(self) -> str:
        """Return the id as people see it."""
        return self.id[:SHORT_ID]

    @property
    def marks(self) -> dict[str, str]:
        """Return what an approval is for, as people see it, by marks that tell whether it is still the same."""
        figures = {f"{name} {amount}": f"{name}: {amount}" for name, amount in self.figures.items()}
        seen = {**self.lines, **figures}
        return {hashlib.sha256(key.encode()).hexdigest()[:MARK]: line for key, line in seen.items()}

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "offering": self.offering,
            "mode": self.mode,
            "cluster": self.cluster,
            "scope": self.scope,
            "reason": self.reason,
            "since": stamp(self.since),
            "seen": stamp(self.seen),
            "actions": list(self.lines.values()),
        }


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person has approved."""

    plan: str
    by: str
    approved: datetime
    expires: datetime
    # The actions that were approved and are not done yet, as in `HeldRow`.
    seen_keys: Mapping[str, str]
    # A pass carries it out.
    has_begun: bool = False
    figures: Mapping[str, str] = field(default_factory=dict)

    @property
    def short_id(self) -> str:
        """Return the plan's id as people see it."""
        return self.plan[:SHORT_ID]

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.seen_keys)

    @property
    def open_keys(self) -> frozenset[str]:
        """Return those that are not done: the same again is another act."""
        return frozenset(key for key, seen in self.seen_keys.items() if seen != DONE)


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

    def planned(self) -> list[HeldRow]:
        """Return those of the held plans of which the last pass planned something: people can approve these. Raises
        StateError.
        """
        return [each for each in self.waiting() if each.lines]

    def hold(self, plan: HeldRow) -> HoldResult:
        """Write a plan down, or that it still waits. It stays about all that it was ever held for.

        Where it cannot be written it is UNWRITTEN, with a warning; in a transaction that is open, StateError.
        """

        def work(db: Db) -> None:
            now = moment_text(datetime.now(UTC))
            before = self._row(db, plan.id)
            known = _held_row(before).seen_keys if before else {}
            values: dict[str, Value] = {
                "cluster": plan.cluster,
                "scope": plan.scope,
                "reason": plan.reason,
                "lines": _json(dict(plan.lines)),
                "keys": _json({**known, **plan.seen_keys, **dict.fromkeys(plan.lines, now)}),
                "figures": _json(dict(plan.figures)),
                "apart": int(plan.is_apart and (before is None or bool(before["apart"]))),
                "lasting": int(plan.is_lasting),
                "seen": now,
                "since": before["since"] if before else now,
            }
            columns_ = ", ".join(values)
            marks = ", ".join("?" * len(values))
            db.run(
                f"INSERT OR REPLACE INTO held_plans (offering, mode, id, {columns_}) VALUES (?, ?, ?, {marks})",  # noqa: S608  our own words
                *(*self._which, plan.id, *values.values()),
            )

        what = f"the held plan {plan.id}"
        is_known = recall(self.source, what, lambda db: self._row(db, plan.id) is not None)
        is_written = note(self.source, what, work)
        if is_known:
            return HoldResult.KNOWN
        return HoldResult.NEW if is_written else HoldResult.UNWRITTEN

    def _row(self, db: Db, plan: str) -> Row | None:
        sql = "SELECT * FROM held_plans WHERE offering = ? AND mode = ? AND id = ?"
        return db.row(sql, *self._which, plan)

    def keep_only(
        self, plans: Set[str], planned: Set[str], looked_at: Set[str], unplanned: Set[str] = frozenset()
    ) -> list[str]:
        """Forget what a pass over everything did not plan again, and return the ids of plans of which nothing is left.

        `plans`: the ids of those that it holds; `planned`: the keys of their actions. An action about an account that
        the pass has `looked_at` is forgotten at once: nothing wants it any more. Another one, when no pass has planned
        it for an hour: one answer of Waldur that lacks something must not release it. What is about accounts that the
        pass leaves alone (`unplanned`) waits on. A plan all of which is held as
        part of others, or that does not last, is forgotten at once. Raises StateError where what waits cannot be read.
        """
        gone = []
        for each in self.waiting():
            kept = _still_wanted(each.seen_keys, planned, looked_at, unplanned)
            is_over = not each.is_lasting or not kept or kept.keys() <= planned
            if each.id not in plans and is_over:
                self.drop(each.id)
                gone.append(each.id)
                continue
            lines = {k: line for k, line in each.lines.items() if k in planned or _account_of(k) in unplanned}
            if kept != each.seen_keys or lines != each.lines:
                self._write_keys(each.id, kept, lines)
        return gone

    def release(self, plan: str, keys: Iterable[str]) -> None:
        """Forget what of a plan is carried out now; what else it was held for still waits."""
        row = next((each for each in self.waiting() if each.id == plan), None)
        if row is None:
            return
        if kept := {key: seen for key, seen in row.seen_keys.items() if key not in {*keys}}:
            self._write_keys(plan, kept, {key: line for key, line in row.lines.items() if key in kept})
        else:
            self.drop(plan)

    def _write_keys(self, plan: str, keys: Mapping[str, str], lines: Mapping[str, str]) -> bool:
        sql = "UPDATE held_plans SET keys = ?, lines = ? WHERE offering = ? AND mode = ? AND id = ?"
        values = (_json(dict(keys)), _json(dict(lines)), *self._which, plan)
        return note(self.source, "what of a plan waits still", lambda db: db.run(sql, *values))

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
        skipped: it is unknown when they end. Raises StateError.
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

    def approve(self, plan: str, *, expires: datetime, by: str, shown: Set[str] | None = None) -> int:
        """Release the actions that a plan has now; return how many. `shown`: the marks of what the person has seen.
        Raises StateError, and PlanChanged where the plan has others, or is approved already: then nothing is approved.
        """
        with writing(self.source) as db:
            drop_copied_back(db)
            held = next((p for p in HeldPlans(db, self.offering, self.mode).waiting() if p.id == plan), None)
            if held and shown is not None:
                earlier = next(
                    (a for a in Approvals(db, self.offering, self.mode).open() if a.plan == plan), None
                )
                _require_as_shown(held, earlier, shown)
            now = moment_text(datetime.now(UTC))
            keys = dict.fromkeys(held.lines, now) if held else {}
            if not keys:
                return 0
            db.run(
                "INSERT OR REPLACE INTO approvals (offering, mode, plan, by, approved, expires, keys, begun, figures) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?)",
                *(*self._which, plan, by, now, moment_text(expires), _json(keys)),
                _json(dict(held.figures) if held else {}),
            )
        return len(keys)

    def revoke(self, plan: str) -> bool:
        """Return whether there was an approval. Raises StateError: then it stays."""
        with writing(self.source) as db:
            return self._delete(db, plan) > 0

    def withdraw(self, plan: str) -> bool:
        """Drop the approval of a plan that has become another one than was shown to the person; True where there was
        one.
        """
        return any(each.plan == plan for each in self.open()) and self.revoke(plan)

    def begin(self, plan: str) -> bool:
        """Note that a pass begins with an approved plan; False when it is noted already, or cannot be noted."""
        if not any(each.plan == plan and not each.has_begun for each in self.open()):
            return False
        sql = "UPDATE approvals SET begun = 1 WHERE offering = ? AND mode = ? AND plan = ?"
        what = f"the begin of plan {plan}"
        return note(self.source, what, lambda db: db.run(sql, *self._which, plan))

    def note_done(self, keys: Set[str]) -> None:
        """Note that these actions are done: once a pass over everything does not plan them again, the same is another
        act. Where that cannot be written is a warning.
        """

        def work(db: Db) -> None:
            for each in Approvals(db, self.offering, self.mode).open():
                if not each.keys.isdisjoint(keys):
                    done = dict.fromkeys(each.keys & keys, DONE)
                    self._keep(db, each, {**each.seen_keys, **done})

        note(self.source, "which approved actions are done", work)

    def close(
        self, plans: Set[str], planned: Set[str], looked_at: Set[str], unplanned: Set[str] = frozenset()
    ) -> None:
        """Drop approvals that have expired, and what of the others nothing wants any more, as in `keep_only`. `plans`:
        the ids of those that the pass made. Where that cannot be written is a warning.
        """
        with reading(self.source) as db:
            rows = db.rows("SELECT * FROM approvals WHERE offering = ? AND mode = ?", *self._which)
        for each in map(_approval, rows):
            kept = dict(each.seen_keys)
            if each.plan not in plans and each.figures:
                # What an outage has left of it.
                kept = {key: seen for key, seen in kept.items() if key in planned and each.has_begun}
            elif not each.figures:
                kept = _still_wanted(kept, planned, looked_at, unplanned)
            if each.expires <= datetime.now(UTC):
                kept = {}
            if kept != each.seen_keys or not kept:
                note(self.source, "that approvals are over", lambda db: self._keep(db, each, kept))  # noqa: B023

    def end(self) -> None:
        """Drop all of them: what they were given for is done. Where that cannot be written is a warning."""
        sql = "DELETE FROM approvals WHERE offering = ? AND mode = ?"
        note(self.source, "that approvals are over", lambda db: db.run(sql, *self._which))

    def _keep(self, db: Db, approval: Approval, keys: Mapping[str, str]) -> None:
        if not keys:
            self._delete(db, approval.plan)
            return
        sql = "UPDATE approvals SET keys = ? WHERE offering = ? AND mode = ? AND plan = ?"
        db.run(sql, _json(dict(keys)), *self._which, approval.plan)

    def _delete(self, db: Db, plan: str) -> int:
        return db.run(
            "DELETE FROM approvals WHERE offering = ? AND mode = ? AND plan = ?", *self._which, plan
        )


def _require_as_shown(held: HeldRow, earlier: Approval | None, shown: Set[str]) -> None:
    if earlier:
        raise PlanChanged(
            f"plan {held.short_id} is approved already, by {earlier.by} until {stamp(earlier.expires)}"
        )
    added = [line for mark, line in held.marks.items() if mark not in shown]
    gone = len(shown - held.marks.keys())
    if added or gone:
        said = [f"{len(added)} were added ({shortlist(added, ADDED_NAMED, '; ')})"] if added else []
        said += [f"{gone} are not planned any more"] if gone else []
        raise PlanChanged(
            f"plan {held.short_id} is not approved: of its actions {' and '.join(said)} since you looked"
        )


def _still_wanted(
    seen_keys: Mapping[str, str], planned: Set[str], looked_at: Set[str], unplanned: Set[str]
) -> dict[str, str]:
    """Return the actions that are planned, and those of which that is unknown: not done, and about accounts that the
    pass has left alone, or has not looked at while they were planned within the last hour.
    """
    now = datetime.now(UTC)
    text, oldest = moment_text(now), moment_text(now - empty_answers.BELIEVED_AFTER)
    newest = moment_text(now + AHEAD_AT_MOST)
    kept = {}
    for key, seen in seen_keys.items():
        # Of a clock that was ahead: the hour begins now.
        if key in planned or seen > newest or (seen != DONE and _account_of(key) in unplanned):
            kept[key] = DONE if seen == DONE else text
        elif seen > oldest and _account_of(key) not in looked_at:
            kept[key] = seen
    return kept


def _account_of(key: str) -> str:
    """Return the account that an action of this key is about, empty where it is about none."""
    return subject_of(key)[0]


def subject_of(key: str) -> tuple[str, str]:
    """Return the account and the person that an action of this key is about, each empty where it is about none."""
    try:
        _, values = read_json(key)
        is_move = isinstance(values.get("before"), str) and "user" in values
        return str(values.get("before" if is_move else "account") or ""), str(values.get("user") or "")
    except (TypeError, ValueError, AttributeError):
        return "", ""


def kind_of(key: str) -> str:
    """Return what kind of action has this key, in words: `remove member`."""
    try:
        return re.sub("(?<=.)([A-Z])", r" \1", str(read_json(key)[0])).lower()
    except (TypeError, ValueError, LookupError):
        return "other action"


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
    """Return whether nothing is held, approved or skipped, and no empty answer noted. Raises StateError."""
    return not db.row(
        "SELECT 1 FROM held_plans WHERE offering = ?1 AND mode = ?2 "
        "UNION ALL SELECT 1 FROM approvals WHERE offering = ?1 AND mode = ?2 "
        "UNION ALL SELECT 1 FROM hints WHERE scope = ?1 AND key = ?2 AND kind = ?3 "
        "UNION ALL SELECT 1 FROM empty_answers WHERE offering = ?1 AND mode = ?2",
        offering.uuid,
        mode,
        SKIPPED.kind,
    )


def drop_copied_back(db: Db) -> bool:
    """Drop all approvals where the state file is an old copy that a person put back: they may have been used or revoked
    since. Logged once. The gate asks this first. Raises StateError.
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
        lines=columns.mapping(row, "lines", str),
        figures=columns.mapping(row, "figures", str),
        is_apart=bool(row["apart"]),
        is_lasting=bool(row["lasting"]),
        offering=row["offering"],
        mode=row["mode"],
        since=columns.moment(row, "since"),
        seen=columns.moment(row, "seen"),
        seen_keys=columns.mapping(row, "keys", str),
    )


def _approval(row: Row) -> Approval:
    return Approval(
        plan=row["plan"],
        by=row["by"],
        approved=columns.moment(row, "approved"),
        expires=columns.moment(row, "expires"),
        seen_keys=columns.mapping(row, "keys", str),
        has_begun=bool(row["begun"]),
        figures=columns.mapping(row, "figures", str),
    )


def _json(value: Any) -> str:
    """Return JSON in ASCII: text that is not Unicode is read as it was."""
    return json.dumps(value)
