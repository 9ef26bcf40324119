# SPDX-License-Identifier: MIT
"""Keys of resources: no backend here makes any, which Waldur is told, so that nobody waits for one."""

from __future__ import annotations

import logging

from agent.core.errors import WaldurError
from agent.run.site import Site
from agent.waldur import api_keys

log = logging.getLogger(__name__)

REFUSAL = "The site's cluster has no keys that could be rotated."


def refuse(site: Site, key_uuid: str) -> str:
    """Set the key erred with a reason. Raises WaldurError where another try may help."""
    try:
        api_keys.fail(site.client, key_uuid, REFUSAL)
    except WaldurError as error:
        if error.retryable:
            raise
        log.warning("key %s cannot be refused: %s", key_uuid, error)
    return REFUSAL
