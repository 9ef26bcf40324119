# SPDX-License-Identifier: MIT
"""What a pass did, in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agent.cli.options import number
from agent.core.errors import cause_of
from agent.run.diagnosis.picture import moment

HOMES_WAIT = {
    "waiting": "for users that this head node does not know yet",
    "unknown": "could not be looked up",
    "later": "left for the next pass",
    "failed": "failed",
}


OK = "ok"
REPEATED = "as above"


@dataclass(frozen=True, slots=True)
class PassText:
    """One pass in words."""

    # None where it is not known.
    ended: datetime | None
    result: str
    # What it did, by kind where no resource needed anything, empty where an error ended it before.
    done: str
    seconds: str
    # Homes that are not there yet, failures, and notes.
    more: tuple[str, ...]
    subject: str = ""


def pass_text(entry: Mapping[str, Any], said: set[str] | None = None) -> PassText:
    """Return what is written of a pass; that it cannot be read, where that is so.

    `said`: the causes of failures, and notes, that other passes of the same offering have named; this one's are added.
    Each is named once.
    """
    try:
        return _text(entry, set() if said is None else said)
    except (AttributeError, KeyError, TypeError, ValueError):
        return PassText(None, "a pass ended", "what is written of it cannot be read", "? s", ())


def _text(entry: Mapping[str, Any], said: set[str]) -> PassText:
    results = ", ".join(f"{count} {result}" for result, count in (entry.get("results") or {}).items())
    actions = number(entry.get("actions", 0), "action")
    done = f"{results or 'nothing to do'}, {actions}"
    if entry.get("result") != OK and not (results or entry.get("actions")):
        done = ""
    if not results and entry.get("actions"):
        kinds = ", ".join(f"{count} {verb}" for verb, count in (entry.get("kinds") or {}).items())
        done = f"{entry.get('in_step', 0)} in step, {actions}{f' ({kinds})' if kinds else ''}"
    homes = entry.get("homes") or {}
    waits = [f"{homes[state]} {text}" for state, text in HOMES_WAIT.items() if homes.get(state)]
    more = [f"homes wait: {', '.join(waits)}"] if waits else []
    return PassText(
        moment(entry.get("ended")),
        str(entry.get("result")),
        done,
        f"{entry.get('seconds')} s",
        (*more, *_news(entry, said)),
        str(entry.get("subject") or ""),
    )


def _news(entry: Mapping[str, Any], said: set[str]) -> list[str]:
    """Return failures and notes of a pass that were not `said` yet, and add them."""
    news = []
    said_of_it = (*entry.get("failures", ()), *entry.get("waits", ()), *entry.get("notes", ()))
    for line in map(str, said_of_it):
        cause = cause_of(line)
        if cause not in said:
            news.append(line)
        elif entry.get("result") != OK and REPEATED not in news:
            news.append(REPEATED)
        said.add(cause)
    return news
