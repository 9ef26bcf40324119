# SPDX-License-Identifier: MIT
"""Loading the configured components into an offering: each on its own, so that one refusal stops no other. In a pause
and in mode `observe` the changes are found, and Waldur is told none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.config.model import Offering
from agent.core.errors import WaldurError
from agent.plan.components import Change, ComponentChange, changes
from agent.run import gate
from agent.waldur import offerings
from agent.waldur.client import WaldurClient
from backends import registry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What became of one component."""

    change: ComponentChange
    error: WaldurError | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What became of an offering's components. `skipped`: why Waldur was told nothing, empty where it was told."""

    components: Sequence[Loaded] = ()
    skipped: str = ""


def load(client: WaldurClient, offering: Offering, state_dir: Path) -> LoadResult:
    """Make the offering's components in Waldur like the configured ones that its backends know, where the policy lets
    Waldur be told. Raises WaldurError when it cannot be read.
    """
    skipped = gate.reason_to_tell_nothing(gate.rules_for(offering, state_dir))
    known = registry.with_known_components(offering).components
    found = changes(known.values(), offerings.facts(client).components)
    return LoadResult([Loaded(each) if skipped else _carry_out(client, each) for each in found], skipped)


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
