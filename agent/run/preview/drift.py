# SPDX-License-Identifier: MIT
"""How far the cluster is from what Waldur wants, looked at on a schedule: since when, and what would be done.

The same plan as a pass makes, and nothing of it is carried out. The last report of each offering and mode lies in
`state_dir/drift`, so that `status` shows it without looking again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.core.actions import Action
from agent.run.preview import previews
from agent.run.preview.previews import Preview
from agent.run.site import Site
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable
from agent.state.store import stamp

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Drift:
    """`kinds`: how many actions of each kind would bring Waldur and the cluster together. `since`: UTC, as text."""

    looked: str
    since: str = ""
    kinds: Mapping[str, int] = field(default_factory=dict)

    @property
    def differences(self) -> int:
        return sum(self.kinds.values())


def actions(found: Preview) -> frozenset[Action]:
    """Everything that differs, whether or not the policy lets a pass mend it."""
    kept = {action for plan in found.held for action in plan.actions}
    return frozenset({*found.happens, *kept, *(refused.action for refused in found.refused)})


def look(site: Site, mode: Mode) -> Drift:
    """Compare, remember and tell where something differs. Raises SiteAgentError."""
    kinds = Counter(action.verb for action in actions(previews.preview(site, mode)))
    before = last(site.state_dir, site.offering.uuid, mode)
    now = stamp(datetime.now(UTC))
    since = (before.since if before and before.differences else now) if kinds else ""
    drift = Drift(now, since, dict(sorted(kinds.items())))
    document = {"looked": drift.looked, "since": drift.since, "kinds": dict(drift.kinds)}
    state_files.write_json(site.state_dir, _path(site.state_dir, site.offering.uuid, mode), document)
    if drift.differences:
        told = ", ".join(f"{count} {verb}" for verb, count in drift.kinds.items())
        log.warning("%s of offering %s has drifted since %s: %s", mode, site.offering.name, since, told)
    return drift


def last(state_dir: Path, offering_uuid: str, mode: Mode) -> Drift | None:
    """The last report, None where there is none that can be read."""
    try:
        document: dict[str, Any] = state_files.read_json(_path(state_dir, offering_uuid, mode)) or {}
    except Unreadable:
        return None
    kinds = document.get("kinds")
    if not isinstance(kinds, dict):
        return None
    return Drift(str(document.get("looked", "")), str(document.get("since", "")), kinds)


def _path(state_dir: Path, offering_uuid: str, mode: Mode) -> Path:
    return state_dir / "drift" / f"{offering_uuid}-{mode}.json"
