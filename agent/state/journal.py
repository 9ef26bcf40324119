# SPDX-License-Identifier: MIT
"""The journal: one JSON line for each action that was carried out or tried, appended and never changed. Usage that was
reported as usual has one line for many accounts.

Workers and commands write at once: each record is one write to a file that was opened for appending. A file
that has grown to `MAX_BYTES` is put aside; `FILES` of these are kept. Where it cannot be written a pass warns
and goes on.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent.config.model import Mode, Offering
from agent.config.secret import mask_url
from agent.core.bounded_json import read_json
from agent.core.errors import StateError, StateUnreadable, StateUnwritable
from agent.core.printable import printable_json
from agent.host import files
from agent.state import store

if TYPE_CHECKING:  # `audit` and `approve` only read: all classes of actions would double their start
    from agent.core.actions import Action
    from agent.core.plans import Outcome

log = logging.getLogger(__name__)

MAX_BYTES = 10 * 2**20
FILES = 10
# By one search for the latest lines.
LOOKED_AT_MOST = 3 * MAX_BYTES
# Given up where the disk is full, so that what is being carried out is written down.
RESERVE = ".reserve"
RESERVE_BYTES = 256 * 1024
# At the beginning: behind it stands the name of a resource, which people choose.
ORDER_IN_REASON = re.compile(r"\w+ order ([0-9a-f]{32})\b")


class Clustered(Protocol):
    @property
    def cluster(self) -> str: ...


class Where(Protocol):
    """What of an `agent.run` site the journal needs."""

    @property
    def offering(self) -> Offering: ...

    @property
    def state_dir(self) -> Path: ...

    @property
    def backend(self) -> Clustered: ...


@dataclass(frozen=True, slots=True)
class Query:
    """Which lines are wanted; empty means any. Moments are compared with the line's time."""

    user: str = ""
    account: str = ""
    order: str = ""
    offerings: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, record: Mapping[str, Any]) -> bool:
        ids = record.get("ids") or {}
        wanted = {"user": self.user, "order": self.order}
        if any(value and ids.get(name) != value for name, value in wanted.items()):
            return False
        if self.account and self.account not in (
            ids.get("account"),
            *((record.get("action") or {}).get(name) for name in ("parent", "before", "after")),
            *reported_in(record),
        ):
            return False
        if self.offerings and record.get("offering") not in self.offerings:
            return False
        moment = _moment(record)
        if moment is None:
            return self.since is None and self.until is None
        return (self.since is None or moment >= self.since) and (self.until is None or moment <= self.until)


def record(site: Where, mode: Mode, outcomes: Sequence[Outcome], *, cause: str = "") -> None:
    """Write one line for each outcome; one for all accounts of a month where usage was reported as a matter of course.

    `cause`: what made the pass run, where the actions do not name an order.
    """
    lines = [
        _line(
            site,
            mode,
            f"order {order}" if (order := ids_of(outcome.action).get("order")) else cause,
            outcome="done" if outcome.done else "failed",
            error=str(outcome.error) if outcome.error else None,
            ids=ids_of(outcome.action),
            action=outcome.action.as_json(),
            commands=[_shown(command) for command in outcome.commands],
            duration_s=round(outcome.duration_s, 3),
        )
        for outcome in outcomes
        if outcome.error or not outcome.action.is_routine
    ]
    reported: dict[str, dict[str, Mapping[str, str | None]]] = {}
    for total in (outcome.action.month_total for outcome in outcomes if outcome.done):
        if total is not None:
            month, account, amounts = total
            reported.setdefault(month, {})[account] = amounts
    for month, by_account in reported.items():
        accounts = f"{len(by_account)} account{'s' if len(by_account) > 1 else ''}"
        summary = {
            "action": "ReportedUsage",
            "text": f"reported usage of {accounts} in {month}",
            "month": month,
            "reported": dict(sorted(by_account.items())),
        }
        lines.append(
            _line(site, mode, cause, outcome="done", error=None, ids={}, action=summary, commands=[])
        )
    if lines:
        _append(site.state_dir, lines)


def _line(site: Where, mode: Mode, cause: str, **said: Any) -> dict[str, Any]:
    return {
        "time": _now(),
        "offering": site.offering.uuid,
        "offering_name": site.offering.name,
        "cluster": site.backend.cluster,
        "mode": mode,
        "cause": cause or f"{mode} pass",
        **said,
        "pid": os.getpid(),
    }


def reported_in(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the usage that a line says was reported, by account; empty for all other lines."""
    action = line.get("action") or {}
    # "told": lines of earlier versions.
    found = action.get("reported", action.get("told"))
    return found if isinstance(found, dict) else {}


def reserve(state_dir: Path) -> None:
    """Set room on the disk aside for the lines of what is done next. Raises StateUnwritable, StateError."""
    path = state_dir / "journal" / RESERVE
    try:
        with files.acting_as_owner(state_dir):
            files.make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE_BYTES)
            finally:
                os.close(descriptor)
            # The journal itself may be what cannot be written.
            _append_to(_files(state_dir)[0], "")
    except OSError as error:
        raise StateUnwritable(
            f"the journal in {path.parent} cannot be written ({error.strerror}), and nothing is changed without it "
            "(policy.journal_failures is stop): make room, or set go_on"
        ) from error


def note(state_dir: Path, offering: Offering | None, text: str, *, by: str, mode: str = "") -> None:
    """Write down what a person did to the policy: approved, revoked, paused, resumed; None: of all offerings."""
    line: dict[str, Any] = {
        "time": _now(),
        "offering": offering.uuid if offering else "",
        "offering_name": offering.name if offering else "",
        "mode": mode,
        "cause": f"operator {by}",
        "outcome": "done",
        "error": None,
        "ids": {},
        "action": {"action": "Operator", "text": text},
        "commands": [],
        "pid": os.getpid(),
    }
    _append(state_dir, [line])


def operator() -> str:
    """Return who runs this command, also behind sudo."""
    try:
        own = getpass.getuser()
    except (KeyError, OSError):
        own = str(os.getuid())
    behind = os.environ.get("SUDO_USER", "")
    return f"{behind} as {own}" if behind and behind != own else own


def read(state_dir: Path, query: Query = Query()) -> Iterator[dict[str, Any]]:
    """Yield the lines that match, oldest first, from all files that are kept. Damaged lines are skipped. Raises
    StateUnreadable where this user may not read the journal: that is no empty one.
    """
    for path in reversed(_files(state_dir)):
        for line in _bytes_of(state_dir, path).split(b"\n"):
            found = _parsed(line.decode(errors="replace")) if line else None
            if found is not None and query.matches(found):
                yield found


def latest(
    state_dir: Path, query: Query, words: Sequence[str], *, skipped: int, count: int
) -> tuple[list[dict[str, Any]], bool]:
    """Return lines that match and have all `words` somewhere, newest first, without the first `skipped` of them; and
    whether there may be more. It ends after `LOOKED_AT_MOST` bytes. Raises StateUnreadable as `read` does.
    """
    wanted = [word for word in (*words, query.user, query.account, query.order) if word]
    found: list[dict[str, Any]] = []
    looked = 0
    for path in _files(state_dir):
        if looked >= LOOKED_AT_MOST:
            return found, True
        content = _bytes_of(state_dir, path)
        looked += len(content)
        for line in _lines_with(content, wanted):
            parsed = _parsed(line)
            if parsed is None or not query.matches(parsed):
                continue
            if skipped:
                skipped -= 1
            elif len(found) == count:
                return found, True
            else:
                found.append(parsed)
    return found, False


def _lines_with(content: bytes, words: Sequence[str]) -> Iterator[str]:
    """Yield the lines that have all these words, the last one first; only ASCII letters are the same in either case."""
    folded = content.lower()
    needles = sorted((word.encode(errors="replace").lower() for word in words), key=len) or [b""]
    end = len(content)
    while end > 0 and (at := folded.rfind(needles[-1], 0, end)) >= 0:
        start, stop = folded.rfind(b"\n", 0, at) + 1, folded.find(b"\n", at)
        stop = len(content) if stop < 0 else stop
        if all(folded.find(needle, start, stop) >= 0 for needle in needles):
            yield content[start:stop].decode(errors="replace")
        end = start - 1


def _bytes_of(state_dir: Path, path: Path) -> bytes:
    """Return a file of the journal; empty, with a warning, where it cannot be read. Raises StateUnreadable."""
    try:
        with files.acting_as_owner(state_dir):
            return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except PermissionError as error:
        todo = files.how_to_act(state_dir, error)
        raise StateUnreadable(f"the journal {path} cannot be read: {error.strerror}{todo}") from error
    except (OSError, StateError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return b""


def _append(state_dir: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    if not lines:
        return
    # People read the file with their own tools, too: names keep their letters, and steer no terminal.
    documents = (json.dumps(line, ensure_ascii=False, default=str) for line in lines)
    text = "".join(f"{printable_json(document)}\n" for document in documents)
    path = _files(state_dir)[0]
    store.keep_up(state_dir)
    try:
        with files.acting_as_owner(state_dir):
            files.make_folder(path.parent)
            _rotate(state_dir)
            try:
                _append_to(path, text)
            except OSError as error:
                room = path.parent / RESERVE
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not room.exists():
                    raise
                room.unlink()
                _append_to(path, text)
    except OSError as error:
        log.warning("the journal %s cannot be written: %s", path, error.strerror)
    except StateError as error:
        log.warning("the journal %s cannot be written: %s", path, error)


def _append_to(path: Path, text: str) -> None:
    """Append text under a lock. Raises OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # The size of a file grows in the middle of another's write: without the lock a line would look cut.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        payload = (_line_end(descriptor) + text).encode("utf-8", "backslashreplace")
        written = os.write(descriptor, payload)
        if written < len(payload):
            os.truncate(descriptor, os.fstat(descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def _line_end(descriptor: int) -> str:
    """Return what ends a line that a full disk has cut, so that ours begins on its own."""
    size = os.fstat(descriptor).st_size
    return "\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else ""


def _rotate(state_dir: Path) -> None:
    """Put a full file aside. One process does it; a process that is writing to it then writes to what was put aside."""
    current, *aside = _files(state_dir)
    if not _is_full(current):
        return
    descriptor = os.open(current.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if _is_full(current):
            for older, newer in zip(reversed(aside), reversed([current, *aside[:-1]]), strict=True):
                if newer.exists():
                    os.replace(newer, older)
    finally:
        os.close(descriptor)


def _is_full(path: Path) -> bool:
    try:
        return path.stat().st_size >= MAX_BYTES
    except FileNotFoundError:
        return False


def _files(state_dir: Path) -> list[Path]:
    """Return the files of the journal, newest first."""
    folder = state_dir / "journal"
    return [folder / "journal.jsonl", *(folder / f"journal.{n}.jsonl" for n in range(1, FILES))]


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        found = read_json(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def ids_of(action: Action) -> dict[str, str]:
    """Return what the action is known by, and the order in its reason where it names none."""
    order = ORDER_IN_REASON.match(action.reason)
    return {**({"order": order.group(1)} if order else {}), **action.ids()}


def _moment(line: Mapping[str, Any]) -> datetime | None:
    try:
        return datetime.fromisoformat(str(line.get("time")))
    except ValueError:
        return None


def _shown(command: str) -> str:
    """Return a command without the passwords that a prefix of it may carry in a URL."""
    return " ".join(mask_url(word) if "://" in word else word for word in command.split(" "))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
