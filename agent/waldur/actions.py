# SPDX-License-Identifier: MIT
"""What sends each action to Waldur. A request stands with its area; this collects them."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.waldur_actions import WaldurAction
from agent.waldur import api_keys, imports, offering_users, orders, resources
from agent.waldur.client import Request

AREAS = (orders, resources, offering_users, api_keys, imports)

REQUESTS: Mapping[type[WaldurAction], Request] = {
    kind: request for area in AREAS for kind, request in area.ACTIONS.items()
}
