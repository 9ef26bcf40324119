# SPDX-License-Identifier: MIT
"""Does the offering exist, and may the token see it? A list of orders does not tell: Waldur answers an empty one.

Asked once an hour at most, so that an idle pass costs its list pages only. The file that remembers is a hint:
without it the question is asked again.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

from agent.waldur import offerings
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

VALID_S = 3600.0


def make(client: WaldurClient, state_dir: Path) -> None:
    """Raises WaldurError when the offering cannot be seen, with what to check."""
    seen = state_dir / "offerings-seen" / client.offering_uuid
    if _is_fresh(seen):
        return
    offerings.facts(client)
    _remember(seen)


def _is_fresh(seen: Path) -> bool:
    try:
        return 0 <= time.time() - seen.stat().st_mtime < VALID_S
    except OSError:
        return False


def _remember(seen: Path) -> None:
    try:
        seen.parent.mkdir(parents=True, exist_ok=True)
        seen.touch()
    except OSError as error:
        log.debug("cannot remember in %s: %s", seen, error.strerror)
