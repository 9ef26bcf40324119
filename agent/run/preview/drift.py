# SPDX-License-Identifier: MIT
"""How far the cluster is from what Waldur wants, looked at on a schedule: since when, and what would be done.

The same plan as a pass makes, and nothing of it is carried out. The last report of each offering and mode is
remembered, so that `status` shows it without looking again.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import UTC, datetime

from agent.config.model import Mode
from agent.core.actions import Action
from agent.run.preview import previews
from agent.run.preview.previews import Preview
from agent.run.site import Site
from agent.state.hints import DRIFTS, Drift
from agent.state.store import stamp

log = logging.getLogger(__name__)


def actions(found: Preview) -> frozenset[Action]:
    """Return everything that differs, whether or not the policy lets a pass change it."""
    kept = {action for plan in found.held for action in plan.actions}
    return frozenset({*found.allowed, *kept, *(refused.action for refused in found.refused)})


def look(site: Site, mode: Mode) -> Drift:
    """Compare, record, and log where something differed the last time as well. Raises SiteAgentError.

    What differs for the first time is an order of a minute ago, as a rule, and the next pass does it.
    """
    kinds = Counter(action.verb for action in actions(previews.preview(site, mode)))
    before = DRIFTS.get(site.state_dir, site.offering.uuid, mode)
    now = stamp(datetime.now(UTC))
    since = (before.since if before and before.differences else now) if kinds else ""
    drift = Drift(now, since, dict(sorted(kinds.items())))
    DRIFTS.put(site.state_dir, site.offering.uuid, {mode: drift})
    if drift.differences and before and before.differences:
        differing = ", ".join(f"{count} {verb}" for verb, count in drift.kinds.items())
        log.warning("%s of offering %s has drifted since %s: %s", mode, site.offering.name, since, differing)
    return drift
