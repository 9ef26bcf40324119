# SPDX-License-Identifier: MIT
"""Periodic usage policies: how long their period is, and what became of the settings that they sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agent.core.errors import WaldurLacks
from agent.core.periodic import Granularity
from agent.waldur import records
from agent.waldur.client import WaldurClient

PATH = "marketplace-slurm-periodic-usage-policies/"
REPORT = "report-command-result"
MESSAGE_LENGTH = 2000
# As Waldur numbers them in `period`.
GRANULARITIES = {1: Granularity.TOTAL, 2: Granularity.MONTH, 3: Granularity.QUARTER, 4: Granularity.YEAR}
# As a component has it in `limit_period`, which wins over the policy's.
LIMIT_PERIODS = {
    "total": Granularity.TOTAL,
    "month": Granularity.MONTH,
    "quarterly": Granularity.QUARTER,
    "annual": Granularity.YEAR,
}


def granularity(client: WaldurClient, policy_uuid: str) -> Granularity | None:
    """Return the policy's period, None where it has a period that we do not know. Raises WaldurError."""
    found = client.get(f"{PATH}{policy_uuid}/", [("field", "period")]).get("period")
    return GRANULARITIES.get(found) if isinstance(found, int) else None


@dataclass(frozen=True, slots=True)
class PeriodicPolicy:
    """A policy as Waldur shows it."""

    uuid: str
    granularity: Granularity | None
    # Its fields by API name, as they came.
    values: Mapping[str, Any]


def of_offering(client: WaldurClient) -> PeriodicPolicy | None:
    """Return the offering's policy, the first of several; None where it has none, or the server knows no such policies
    (2024). Raises WaldurError.
    """
    try:
        found = next(client.pages(PATH, [("scope_uuid", client.offering_uuid)]), None)
    except WaldurLacks:
        return None
    if found is None:
        return None
    period = found.get("period")
    known = GRANULARITIES.get(period) if isinstance(period, int) else None
    return PeriodicPolicy(records.uuid(found, "a policy"), known, found)


def report(
    client: WaldurClient,
    policy_uuid: str,
    resource_uuid: str,
    *,
    error: str,
    commands: Sequence[str],
    is_emulated: bool = False,
) -> None:
    """Report what came of a policy's settings; an empty `error` is success. `is_emulated`: they were meant for an
    emulator. Servers before 8.0 have no such call.
    """
    body = {
        "resource_uuid": resource_uuid,
        "success": not error,
        "error_message": error[:MESSAGE_LENGTH],
        "mode": "emulator" if is_emulated else "production",
        "commands_executed": list(commands),
    }
    with suppress(WaldurLacks):
        client.post_if_there(REPORT, f"{PATH}{policy_uuid}/{REPORT}/", body, repeatable=True)
