# SPDX-License-Identifier: MIT
"""What an account that was lost is made of again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime

from agent.core.model import AccountingType, Component, Resource, ResourceState
from agent.plan import lost
from tests.agent.plan.worlds import MEM, RULES, cluster

PREPAID = Component("one", "months", AccountingType.ONE, "One", targets={"cpu": 60})
PAID = replace(RULES, components=(PREPAID, MEM))
RESOURCE = Resource(
    "r",
    "one",
    "one",
    ResourceState.OK,
    project_uuid="p",
    project_slug="proj",
    customer_uuid="c",
    customer_slug="cust",
    limits={"one": 2, "mem": 1},
    created=datetime(2026, 1, 10, tzinfo=UTC),
)


def test_what_is_prepaid_is_skipped_while_the_number_of_months_is_unknown() -> None:
    snapshot = cluster({"root": None})
    assert lost.allocation(RESOURCE, PAID, "a_one", (), snapshot).limits == {"mem": 61440}
    ends = replace(RESOURCE, end_date=date(2026, 3, 10))
    assert lost.allocation(ends, PAID, "a_one", (), snapshot).limits == {"cpu": 240, "mem": 61440}
