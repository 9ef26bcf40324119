# SPDX-License-Identifier: MIT
"""A policy that opens its period lowers limits of all its accounts: that is one act of one policy, charged once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.core.model import Account
from agent.core.periodic import Granularity, LimitType
from agent.core.policy import BUDGETS, Budget, Cost, LimitCuts
from agent.plan import periodic
from agent.run.site import Site
from agent.state import charges
from agent.waldur.periodic_messages import desired_settings, written_at
from backends.testing.periodic import AccountSettings
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.run.periodic.periodic_world import PeriodicWorld

pytestmark = pytest.mark.events

MINUTES = LimitType.GRP_TRES_MINS
SMALL = Budget(2, 2)
BEFORE, OPENS, LATER = "2025-12-10T00:00:00", "2026-01-01T00:10:02", "2026-01-09T00:00:00"
RESET = {"reset_raw_usage": True}
CARRIED = {"carryover_details": {"previous_period": "2025-12"}}


class Policy(PeriodicWorld):
    """A policy of months over six accounts; two limits and two shares an hour may be lowered without a person."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path) -> None:
        super().__init__(waldur, folder)
        self.of_account = dict(zip((f"a_{n}" for n in range(6)), waldur.seed.resource_uuids, strict=False))
        for account, uuid in self.of_account.items():
            waldur.site.change("resources", uuid, backend_id=account)
            self.cluster.periodic.accounts[account] = AccountSettings(
                share=10, limits={MINUTES: {"cpu": 1000}}
            )
        names = {name: Account(name, "root") for name in self.of_account}
        self.cluster.state = replace(
            self.cluster.state,
            accounts={**self.cluster.state.accounts, **names},
            used={key: {"cpu": 100} for key in names},
        )
        self.small = self.with_policy(budgets={**BUDGETS, Cost.LIMITS_CUT: SMALL, Cost.SHARES_LOWERED: SMALL})

    def send(self, timestamp: str, cpu: int, site: Site | None = None, **settings: Any) -> int:
        """One message for each account; return how many are in force."""
        for account, resource in self.of_account.items():
            asked = {"fairshare": cpu // 100, "grp_tres_mins": {"cpu": cpu}, **settings}
            changes = {"backend_id": account, "resource_uuid": resource, "timestamp": timestamp}
            self.received(self.message(asked, **changes), site or self.small)
        found = (self.cluster.periodic.accounts[account].limits for account in self.of_account)
        return sum(limits[MINUTES]["cpu"] == cpu for limits in found)

    def charged(self, cost: Cost) -> set[str]:
        now = charges.history(self.site.state_dir, "memory", _now())
        return {charge.account for charge in now.hour if charge.cost is cost}


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def policy(tmp_path: Path) -> Iterator[Policy]:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=6)) as server:
        yield Policy(server, tmp_path)


@pytest.mark.parametrize("announced", [RESET, CARRIED, RESET | CARRIED], ids=["reset", "carried", "both"])
def test_the_first_messages_of_a_period_are_charged_once(policy: Policy, announced: dict[str, Any]) -> None:
    assert policy.send(BEFORE, 1000) == 6
    assert policy.send(OPENS, 900, **announced) == 6
    one = {f"policy {policy.policy}, 2026-01"}
    assert (policy.charged(Cost.LIMITS_CUT), policy.charged(Cost.SHARES_LOWERED)) == (one, one)
    assert policy.waiting() == []
    assert all(success for success, *_ in policy.reported())


@pytest.mark.parametrize(
    ("before", "timestamp", "settings"),
    [
        ("", OPENS, RESET),
        (BEFORE, OPENS, {}),
        (BEFORE, OPENS, {"carryover_details": {"previous_period": "2025-11"}}),
        (BEFORE, OPENS, {"carryover_details": "2025-12"}),
        (OPENS, LATER, RESET | CARRIED),
        ("2026-02-01T00:00:00", "2026-02-02T00:00:00", CARRIED),
    ],
    ids=[
        "none before",
        "not announced",
        "another period",
        "no object",
        "within the period",
        "a later one before",
    ],
)
def test_all_else_is_held_as_ever(
    policy: Policy, before: str, timestamp: str, settings: dict[str, Any]
) -> None:
    if before:
        assert policy.send(before, 1000) == 6
    assert policy.send(timestamp, 900, **settings) == 2
    assert len(policy.waiting()) == 8, "a plan for the limits and one for the share of each"
    notes = policy.order_pass(policy.small).notes
    assert notes == [
        "4 messages of periodic policies wait for an approval, of a_2, a_3, a_4, a_5: `approve` lists the plans"
    ]


def test_what_falls_below_the_use_is_held_and_the_others_are_not(policy: Policy) -> None:
    assert policy.send(BEFORE, 1000) == 6
    used = {**policy.cluster.state.used, "a_0": {"cpu": 950}, "a_5": {"cpu": 901}}
    policy.cluster.state = replace(policy.cluster.state, used=used)
    assert policy.send(OPENS, 900, **CARRIED) == 4
    assert len(policy.waiting()) == 2


def test_cuts_that_the_site_allows_are_charged_to_their_accounts(policy: Policy) -> None:
    """One below what is used is no part of the act."""
    assert policy.send(BEFORE, 1000) == 6
    used = {**policy.cluster.state.used, "a_0": {"cpu": 950}, "a_1": {"cpu": 950}, "a_2": {"cpu": 950}}
    policy.cluster.state = replace(policy.cluster.state, used=used)
    rules = policy.small.offering.policy
    allowing = replace(
        policy.small,
        offering=replace(policy.small.offering, policy=replace(rules, limit_cuts=LimitCuts.ALLOW)),
    )
    assert policy.send(OPENS, 900, allowing, **CARRIED) == 2
    assert policy.charged(Cost.LIMITS_CUT) == {"a_0", "a_1"}


def test_the_same_message_again_opens_nothing_a_second_time(policy: Policy) -> None:
    assert policy.send(BEFORE, 1000) == 6
    assert policy.send(OPENS, 900, **CARRIED) == 6
    assert policy.send(OPENS, 900, **CARRIED) == 6
    # One charge of the hour is left for what comes within the period.
    assert policy.send(LATER, 800, **CARRIED) == 1


PERIODS = [
    (Granularity.MONTH, "2026-03-01T00:00:00", "2026-02-28T00:00:00", "2026-02", "2026-03"),
    (Granularity.MONTH, "2026-01-01T00:00:00", "2025-12-01T00:00:00", "2025-12", "2026-01"),
    (Granularity.QUARTER, "2026-02-14T00:00:00", "2025-12-31T00:00:00", "2025-Q4", "2026-Q1"),
    (Granularity.QUARTER, "2026-12-31T00:00:00", "2026-09-30T00:00:00", "2026-Q3", "2026-Q4"),
    (Granularity.YEAR, "2026-12-31T00:00:00", "2025-01-01T00:00:00", "2025", "2026"),
    (Granularity.QUARTER, "2026-02-14T00:00:00", "2026-01-01T00:00:00", "2025-Q4", ""),
    (Granularity.TOTAL, "2026-02-14T00:00:00", "2025-01-01T00:00:00", "2025", ""),
]


@pytest.mark.parametrize(("granularity", "at", "applied", "previous", "opened"), PERIODS)
def test_which_period_is_opened(
    granularity: Granularity, at: str, applied: str, previous: str, opened: str
) -> None:
    now = _now().replace(tzinfo=None, year=2030)
    document = {
        "action": "apply_periodic_settings",
        "backend_id": "a",
        "settings": {"carryover_details": {"previous_period": previous}},
    }
    moments = [written_at({"timestamp": text}, now) for text in (at, applied)]
    assert periodic.opens(desired_settings(document), *moments, granularity) == opened
    assert periodic.opens(desired_settings(document), moments[0], None, granularity) == ""
