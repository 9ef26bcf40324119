# SPDX-License-Identifier: MIT
"""Held plans, approvals, pauses and what a mode leaves out: files below `state_dir/policy`, one for each thing.

held/<offering>/<mode>/<plan>.json      a plan that waits, as the last pass saw it
approvals/<offering>/<mode>/<plan>.json that somebody approved it, until when, and what of it was begun
left_out/<offering>/<mode>.json         what the last whole pass refused
paused/<offering>.json                  who paused an offering, and since when
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any

from agent.config.model import Mode, Offering
from agent.plan.policy.gate import Approvals, HeldPlan, Refused, WaitingPlan, plan_id
from agent.state import files as state_files
from agent.state.files import Unreadable

LEFT_OUT_SHOWN = 200


class Kept(Enum):
    """What became of a plan that is to be written down; UNWRITTEN: nothing tells of it."""

    NEW = auto()
    KNOWN = auto()
    UNWRITTEN = auto()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A held plan as its file tells it. `actions` are lines for people, `keys` tell them apart, `floor` as HeldPlan."""

    id: str
    offering: str
    mode: str
    cluster: str
    scope: str
    reason: str
    since: datetime
    seen: datetime
    actions: tuple[str, ...]
    keys: frozenset[str]
    floor: Mapping[str, str] = field(default_factory=dict)
    sticky: bool = False

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
            "actions": list(self.actions),
        }


@dataclass(frozen=True, slots=True)
class Approval:
    """`begun`: keys of the plan's actions, once a pass has begun with them."""

    plan: str
    by: str
    approved: datetime
    expires: datetime
    begun: frozenset[str]
    floor: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shelf:
    """The policy's files of one offering and mode."""

    state_dir: Path
    offering: Offering
    mode: str

    @property
    def _held(self) -> Path:
        return _folder(self.state_dir) / "held" / self.offering.uuid / self.mode

    @property
    def _approved(self) -> Path:
        return _folder(self.state_dir) / "approvals" / self.offering.uuid / self.mode

    def waiting(self) -> list[Waiting]:
        """Oldest first."""
        found = [_waiting(document) for _, document in state_files.documents(self._held)]
        return sorted((each for each in found if each), key=lambda each: (each.since, each.id))

    def hold(self, plan: HeldPlan, cluster: str) -> Kept:
        """Write a plan down, or that it still waits."""
        path = self._held / f"{plan.id}.json"
        before = next((each for each in self.waiting() if each.id == plan.id), None)
        now = datetime.now(UTC)
        waiting = Waiting(
            id=plan.id,
            offering=self.offering.uuid,
            mode=self.mode,
            cluster=cluster,
            scope=plan.scope,
            reason=plan.reason,
            since=before.since if before else now,
            seen=now,
            actions=tuple(action.render() for action in plan.actions),
            keys=plan.keys,
            floor=plan.figures,
            sticky=plan.sticky,
        )
        document = {
            **waiting.as_json(),
            "keys": sorted(waiting.keys),
            "floor": dict(plan.figures),
            "sticky": plan.sticky,
        }
        is_written = state_files.write_json(self.state_dir, path, document)
        if before:
            return Kept.KNOWN
        return Kept.NEW if is_written else Kept.UNWRITTEN

    def keep_only(self, plans: Iterable[HeldPlan]) -> list[str]:
        """Drop the plans that a pass over everything did not make again; their ids."""
        kept = {plan.id for plan in plans}
        gone = [each.id for each in self.waiting() if each.id not in kept]
        for plan in gone:
            state_files.remove(self._held / f"{plan}.json")
        return gone

    def drop(self, plan: str) -> None:
        state_files.remove(self._held / f"{plan}.json")

    def approve(self, plan: str, *, expires: datetime, by: str) -> bool:
        """As it waits now. False where it could not be written: then nothing is approved."""
        floor = next((dict(each.floor) for each in self.waiting() if each.id == plan), {})
        document = {
            "plan": plan,
            "by": by,
            "approved": stamp(datetime.now(UTC)),
            "expires": stamp(expires),
            "begun": [],
            "floor": floor,
        }
        return state_files.write_json(self.state_dir, self._approved / f"{plan}.json", document)

    def revoke(self, plan: str) -> bool:
        return state_files.remove(self._approved / f"{plan}.json")

    def withdraw(self, plan: str) -> bool:
        """Drop the approval of a plan that has become another one than was shown; True where there was one."""
        was_approved = any(each.plan == plan for each in self.approvals())
        return was_approved and self.revoke(plan)

    def approvals(self) -> list[Approval]:
        """Those that have not expired."""
        found = [_approval(document) for _, document in state_files.documents(self._approved)]
        now = datetime.now(UTC)
        return [each for each in found if each and each.expires > now]

    def approved(self, *, whole: bool) -> Approvals:
        """The same as the policy wants it. A pass over one order or resource also hears what waits."""
        found = self.approvals()
        waits = [each for each in self.waiting() if each.sticky or not whole]
        return Approvals(
            ids=frozenset(each.plan for each in found),
            begun=frozenset(key for each in found for key in each.begun),
            standing=tuple(
                WaitingPlan(each.id, each.scope, each.reason, each.keys, each.sticky) for each in waits
            ),
            figures={each.plan: each.floor for each in found},
            started={each.plan: each.begun for each in found if each.begun},
        )

    def begin(self, plan: HeldPlan) -> bool:
        """Note that a pass begins with an approved plan; False when it is noted already or is part of one."""
        approval = next((each for each in self.approvals() if each.plan == plan.id), None)
        if approval is None or approval.begun:
            return False
        document = {
            "plan": plan.id,
            "by": approval.by,
            "approved": stamp(approval.approved),
            "expires": stamp(approval.expires),
            "begun": sorted(plan.keys),
            "floor": dict(approval.floor),
        }
        return state_files.write_json(self.state_dir, self._approved / f"{plan.id}.json", document)

    def close_approvals(self, *, still: Iterable[HeldPlan]) -> None:
        """Drop approvals that have expired, or whose plan a pass over everything did not make again."""
        plans = list(still)
        for path, document in state_files.documents(self._approved):
            approval = _approval(document)
            is_used = approval is not None and any(
                plan.id == approval.plan or plan.keys <= approval.begun for plan in plans
            )
            if approval is None or approval.expires <= datetime.now(UTC) or not is_used:
                state_files.remove(path)

    def leave_out(self, refused: Iterable[Refused]) -> bool:
        """Write down what is refused. True when it is not what was refused before; that its amounts grow is no news."""
        listed = list(refused)
        lines = sorted(f"{r.action.line()}: {r.sentence}" for r in listed)
        path = _folder(self.state_dir) / "left_out" / self.offering.uuid / f"{self.mode}.json"
        before = self.left_out()
        meant = plan_id("; ".join(sorted({r.sentence for r in listed})), (r.action for r in listed))
        is_news = (before["count"], before.get("meant", meant)) != (len(lines), meant)
        if not is_news and before["lines"] == lines[:LEFT_OUT_SHOWN]:
            return False
        since = stamp(datetime.now(UTC)) if is_news else before["since"]
        document = {"since": since, "count": len(lines), "meant": meant, "lines": lines[:LEFT_OUT_SHOWN]}
        state_files.write_json(self.state_dir, path, document)
        return is_news and bool(lines)

    def left_out(self) -> dict[str, Any]:
        """`count` actions, the first of them as `lines`, and `since` when it is these."""
        path = _folder(self.state_dir) / "left_out" / self.offering.uuid / f"{self.mode}.json"
        nothing = {"since": "", "count": 0, "lines": []}
        try:
            return {**nothing, **(state_files.read_json(path) or {})}
        except Unreadable:
            return nothing


def shelves(state_dir: Path, offerings: Iterable[Offering]) -> Iterator[Shelf]:
    """Those of all modes, and those that something else was ever put on."""
    for offering in offerings:
        folders = (_folder(state_dir) / kind / offering.uuid for kind in ("held", "approvals"))
        used = {path.name for folder in folders for path in folder.glob("*")}
        for mode in (*Mode, *sorted(used - set(Mode))):
            yield Shelf(state_dir, offering, mode)


def pause(state_dir: Path, offering: Offering, *, by: str, reason: str = "") -> bool:
    document = {"by": by, "reason": reason, "since": stamp(datetime.now(UTC))}
    return state_files.write_json(state_dir, _pause_file(state_dir, offering), document)


def resume(state_dir: Path, offering: Offering) -> bool:
    return state_files.remove(_pause_file(state_dir, offering))


def pause_note(state_dir: Path, offering: Offering) -> str:
    """Who paused the offering by command, and since when; empty when nobody has. Not knowing counts as paused."""
    try:
        document = state_files.read_json(_pause_file(state_dir, offering))
    except Unreadable as error:
        return f"perhaps: {error}"
    if document is None:
        return ""
    reason = f" ({document['reason']})" if document.get("reason") else ""
    return f"by {document.get('by', 'somebody')} since {document.get('since', 'some time')}{reason}"


def operator() -> str:
    """Who runs this command: behind sudo, too."""
    try:
        own = getpass.getuser()
    except (KeyError, OSError):
        own = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    return f"{behind} as {own}" if behind and behind != own else own


def stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _folder(state_dir: Path) -> Path:
    return state_dir / "policy"


def _pause_file(state_dir: Path, offering: Offering) -> Path:
    return _folder(state_dir) / "paused" / f"{offering.uuid}.json"


def _waiting(document: dict[str, Any]) -> Waiting | None:
    try:
        moments = {name: datetime.fromisoformat(document[name]) for name in ("since", "seen")}
        lists = {"actions": tuple(document["actions"]), "keys": frozenset(document["keys"])}
        return Waiting(**{**document, **moments, **lists})
    except (KeyError, TypeError, ValueError):
        return None


def _approval(document: dict[str, Any]) -> Approval | None:
    try:
        moments = {name: datetime.fromisoformat(document[name]) for name in ("approved", "expires")}
        return Approval(**{**document, **moments, "begun": frozenset(document["begun"])})
    except (KeyError, TypeError, ValueError):
        return None
