# SPDX-License-Identifier: MIT
"""What a periodic policy sets, by the figures of a recorded message of Waldur 8.0."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from agent.core.errors import PlanRefused
from agent.core.periodic import Granularity, LimitType
from agent.plan.policy_settings import months_before, of_policy

POLICY: dict[str, Any] = {
    "limit_type": "GrpTRESMins",
    "tres_billing_enabled": True,
    "tres_billing_weights": {"CPU": 1, "gpu": "20"},
    "carryover_enabled": True,
    "carryover_factor": 50,
    "grace_ratio": 0.2,
}
LIMITS = {"cpu": 120000, "gpu": 4000, "mem": 0, "storage": None}
USED = {"cpu": Decimal(90000), "gpu": Decimal(1000)}


def test_the_figures_of_a_recorded_message() -> None:
    found = of_policy(POLICY, LIMITS, USED)
    assert found.limits == {"cpu": 10_800_000, "gpu": 432_000, "billing": 19_440_000}
    assert (found.fairshare, found.limit_type) == (52_000, LimitType.GRP_TRES_MINS)


@pytest.mark.parametrize(
    ("changes", "used", "limits"),
    [
        ({"carryover_enabled": False}, USED, {"cpu": 8_640_000, "gpu": 288_000, "billing": 14_400_000}),
        ({}, None, {"cpu": 8_640_000, "gpu": 288_000, "billing": 14_400_000}),
        ({"grace_ratio": 0}, USED, {"cpu": 9_000_000, "gpu": 360_000, "billing": 16_200_000}),
        ({"tres_billing_enabled": False}, USED, {"cpu": 10_800_000, "gpu": 432_000}),
        (
            {"tres_billing_weights": {"GPU": 20}},
            USED,
            {"cpu": 10_800_000, "gpu": 432_000, "billing": 8_640_000},
        ),
        ({}, {"cpu": Decimal(500_000)}, {"cpu": 8_640_000, "gpu": 432_000, "billing": 17_280_000}),
    ],
)
def test_what_each_field_changes(
    changes: dict[str, Any], used: dict[str, Decimal] | None, limits: dict[str, int]
) -> None:
    assert of_policy({**POLICY, **changes}, LIMITS, used).limits == limits


@pytest.mark.parametrize(
    ("changes", "limits", "sentence"),
    [
        ({"grace_ratio": "some"}, LIMITS, "grace_ratio is 'some', which is no number"),
        ({"carryover_factor": float("nan")}, LIMITS, "carryover_factor is NaN, which is no number"),
        ({"limit_type": "GrpWall"}, LIMITS, "its limit_type is 'GrpWall'"),
        ({}, {"cpu": "lots"}, "cpu is 'lots', which is no number"),
    ],
)
def test_what_is_no_number(changes: dict[str, Any], limits: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanRefused, match=sentence):
        of_policy({**POLICY, **changes}, limits, None)


@pytest.mark.parametrize("weights", [None, {}, [], {"node": 1}, {"cpu": 0}])
def test_no_limit_of_billing_that_would_stop_all_jobs(weights: Any) -> None:
    with pytest.raises(PlanRefused, match="its weights are unknown: tres_billing_weights is "):
        of_policy({**POLICY, "tres_billing_weights": weights}, LIMITS, USED)


@pytest.mark.parametrize(
    ("day", "granularity", "months"),
    [
        ("2026-01-31", Granularity.MONTH, ["2025-12"]),
        ("2026-03-31", Granularity.QUARTER, ["2025-12", "2025-11", "2025-10"]),
        ("2026-04-01", Granularity.QUARTER, ["2026-03", "2026-02", "2026-01"]),
        ("2026-04-01", Granularity.TOTAL, []),
    ],
)
def test_the_months_of_the_period_before(day: str, granularity: Granularity, months: list[str]) -> None:
    assert [str(month) for month in months_before(datetime.fromisoformat(day), granularity)] == months
    assert len(months_before(datetime.fromisoformat(day), Granularity.YEAR)) == 12
