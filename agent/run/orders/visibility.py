# SPDX-License-Identifier: MIT
"""Does the offering exist, and may the token see it? A list of orders does not tell: Waldur answers an empty one.

Asked once an hour at most, so that an idle pass costs its list pages only. What remembers that is a hint: without it
the question is asked again.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from agent.state import listings
from agent.waldur import offerings
from agent.waldur.client import WaldurClient

VALID_FOR = timedelta(hours=1)


def make(client: WaldurClient, state_dir: Path) -> None:
    """Raises WaldurError when the offering cannot be seen, with what to check."""
    if not listings.was_seen(state_dir, client.offering_uuid, client.url, VALID_FOR):
        offerings.facts(client)
        listings.note_seen(state_dir, client.offering_uuid, client.url)
