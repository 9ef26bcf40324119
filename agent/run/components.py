# SPDX-License-Identifier: MIT
"""Loading the configured components into an offering: each on its own, so that one refusal stops no other."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agent.config.model import Offering
from agent.core.errors import WaldurError
from agent.plan.components import Change, ComponentChange, changes
from agent.waldur import offerings
from agent.waldur.client import WaldurClient
from backends import registry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    change: ComponentChange
    error: WaldurError | None = None


def load(client: WaldurClient, offering: Offering) -> list[Loaded]:
    """Make the offering's components in Waldur like the configured ones that its backends know. Raises WaldurError
    when it cannot be read.
    """
    known = registry.with_known_components(offering).components
    present = offerings.facts(client).components
    return [_carry_out(client, change) for change in changes(known.values(), present)]


def _carry_out(client: WaldurClient, change: ComponentChange) -> Loaded:
    try:
        if change.change is Change.CREATE:
            offerings.create_component(client, change.body)
        elif change.change is Change.UPDATE:
            offerings.update_component(client, change.body)
    except WaldurError as error:
        log.error("component %s of offering %s: %s", change.name, client.offering_uuid, error)
        return Loaded(change, error)
    return Loaded(change)
