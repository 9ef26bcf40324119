# SPDX-License-Identifier: MIT
"""What sends each action to Waldur. A request stands with its area; this collects them."""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.waldur_actions import WaldurAction
from agent.waldur import offering_users, orders, resources
from agent.waldur.client import Request

REQUESTS: Mapping[type[WaldurAction], Request] = {
    kind: request for area in (orders, resources, offering_users) for kind, request in area.ACTIONS.items()
}
