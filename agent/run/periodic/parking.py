# SPDX-License-Identifier: MIT
"""Messages of periodic policies that wait: for an approval, or for the end of a pause. Waldur cannot be asked for their
figures again, so each is parked in the state file, the newest one of a policy and a resource. `mode` carries them out.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.model import Offering
from agent.core.account_names import uuid_hex
from agent.core.errors import OfferingPaused, PlanRefused
from agent.core.policy import PolicyMode, PolicyRules
from agent.state.held_plans import HeldPlans
from agent.state.periodic_policies import ParkedMessage, PolicyState, PolicyStateLost
from agent.waldur import periodic_messages

log = logging.getLogger(__name__)

KEY = "periodic_limits"


def digest(document: Mapping[str, Any]) -> str:
    """Return the name of a message; an equal message has the same."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def plans_key(policy: str, resource: str) -> str:
    """Return the key under which plans of one policy for one resource are held."""
    return f"{KEY}-{policy}-{resource}"


def uuids(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the uuids of a message's policy and resource. Raises PlanRefused."""
    try:
        return uuid_hex(str(document.get("policy_uuid"))), uuid_hex(str(document.get("resource_uuid")))
    except ValueError as error:
        raise PlanRefused("it has no policy_uuid or no resource_uuid") from error


def now() -> datetime:
    """Return the present moment as messages have it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def state_of(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> PolicyState:
    """Return what is remembered of the message's policy and resource. Raises PlanRefused and PolicyStateLost."""
    return PolicyState(state_dir, offering.uuid, *uuids(document))


def waits(rules: PolicyRules) -> bool:
    """Return whether a message waits for the end of a pause. Who only observes leaves it to others, paused or not."""
    return rules.paused and rules.mode is not PolicyMode.OBSERVE


def keep(offering: Offering, state_dir: Path, document: Mapping[str, Any], rules: PolicyRules) -> None:
    """Park a message until the pause ends, in place of an older one. Raises PlanRefused where it is unknown which one
    is older, and OfferingPaused where it cannot be written down: then its task has to keep it.
    """
    _, resource = uuids(document)
    came = now()
    at = periodic_messages.written_at(document, came)
    try:
        state = state_of(offering, state_dir, document)
        waiting = state.parked
        if waiting is not None and (at < waiting.at or digest(waiting.document) == digest(document)):
            log.info("periodic limits of resource %s: those of %s wait already", resource, waiting.at)
            return
        state.park(ParkedMessage(document, at, came, ()))
    except PolicyStateLost as error:
        raise OfferingPaused(
            f"the offering is paused {rules.paused_why}, and its periodic limits wait: {error}"
        ) from error
    _drop_plans(offering, state_dir, document)
    log.info("periodic limits of resource %s wait: the offering is paused %s", resource, rules.paused_why)


def unpark(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> None:
    """Forget the parked message of the same policy and resource, and its plans: this one is finished, and none that is
    older counts any more. Raises StateError.
    """
    state_of(offering, state_dir, document).unpark()
    _drop_plans(offering, state_dir, document)


def unpark_older(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> None:
    """Forget the parked message of the same policy and resource where it is not newer than this one. Raises PlanRefused
    and StateError.
    """
    waiting = state_of(offering, state_dir, document).parked
    if waiting is not None and periodic_messages.written_at(document, now()) >= waiting.at:
        unpark(offering, state_dir, document)


def _drop_plans(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> None:
    plans = HeldPlans(state_dir, offering, plans_key(*uuids(document)))
    for waiting in plans.waiting():
        plans.drop(waiting.id)
