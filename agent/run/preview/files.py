# SPDX-License-Identifier: MIT
"""Plans in files: what `plan --out` writes and `apply` carries out, only while the same plan would be made again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.core.actions import Action
from agent.core.bounded_json import read_json
from agent.core.errors import SiteAgentError
from agent.core.plans import Plan, action_from_json
from agent.core.printable import shortlist
from agent.run.preview.previews import Preview, fingerprint
from agent.state.store import stamp

FORMAT = 1
VALID = timedelta(hours=24)
SHOWN = 5


class PlanFileError(SiteAgentError):
    """The file cannot be carried out, and nothing was."""


@dataclass(frozen=True, slots=True)
class PlanFile:
    """The plan of one offering and mode, as it was looked at."""

    offering: str
    mode: Mode
    made: datetime
    expires: datetime
    actions: tuple[Action, ...]


def write(path: Path, offering: str, mode: Mode, preview: Preview) -> PlanFile:
    """Write what would happen; raises PlanFileError where that is not possible. Only the owner can read the file."""
    now = datetime.now(UTC)
    file = PlanFile(offering, mode, now, now + VALID, tuple(preview.allowed))
    document = {
        "format": FORMAT,
        "offering": offering,
        "mode": mode,
        "made": stamp(file.made),
        "expires": stamp(file.expires),
        "actions": [action.as_json() for action in file.actions],
    }
    text = json.dumps(document, ensure_ascii=True, indent=1, default=str)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
    except OSError as error:
        raise PlanFileError(f"{path} cannot be written: {error.strerror}") from error
    return file


def read(path: Path) -> PlanFile:
    """Raises PlanFileError for what `plan --out` did not write."""
    try:
        document = read_json(path.read_text(encoding="utf-8"), values_at_most=None)
        return _parsed(document)
    except OSError as error:
        raise PlanFileError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanFileError(f"{path} is no file that `plan --out` has written ({error})") from error


def check(file: PlanFile, preview: Preview) -> None:
    """Raises PlanFileError when the plan is too old, or would be another one now."""
    if datetime.now(UTC) > file.expires:
        raise PlanFileError(f"the plan has expired ({stamp(file.expires)}): make a new one")
    then = {fingerprint(action): action for action in file.actions}
    now = {fingerprint(action): action for action in preview.allowed}
    gone = [action for key, action in then.items() if key not in now]
    new = [action for key, action in now.items() if key not in then and not action.is_routine]
    if gone or new:
        raise PlanFileError(
            "the cluster or Waldur has moved since the plan was made, so nothing is done."
            f"{_listed(' Not needed any more: ', gone)}{_listed(' New: ', new)} Make a new plan and look at it"
        )


def _parsed(document: Any) -> PlanFile:
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r}")
    actions = Plan.of(action_from_json(record) for record in document["actions"]).actions
    return PlanFile(
        offering=str(document["offering"]),
        mode=Mode(document["mode"]),
        made=_moment(document["made"]),
        expires=_moment(document["expires"]),
        actions=actions,
    )


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} names no zone")
    return moment


def _listed(title: str, actions: Sequence[Action]) -> str:
    if not actions:
        return ""
    return f"{title}{shortlist((action.line() for action in actions), SHOWN, '; ')}."
