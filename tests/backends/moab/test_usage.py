# SPDX-License-Identifier: MIT
"""What was charged by account and user, month by month: one command, exact sums, in the query's zone."""

from __future__ import annotations

import shlex
import subprocess
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.core.errors import BackendError, BackendUnavailable, CommandDenied, ParseError
from agent.core.periods import Month
from agent.core.usage import AccountUsage, UsageQuery
from backends.base import UsageReader
from backends.moab.usage import SCALE
from simulator.mam.install import StandIn
from tests.backends.conftest import on_stand_in

TALLINN = "Europe/Tallinn"
MAY = UsageQuery(Month(2026, 5), TALLINN)


def charged(mam: StandIn, *rows: tuple[str, str, str, str], zone: str = TALLINN) -> None:
    """Records of `2026-05-01T00:00:00`, account, user and charge."""
    mam.add_records(
        (int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()), account, user, charge)
        for text, account, user, charge in rows
    )


def counts(amount: str) -> dict[str, int]:
    return {"deposit": round(float(amount) * SCALE)}


def test_one_command_reads_the_month_of_all_accounts(mam: StandIn) -> None:
    charged(
        mam,
        ("2026-04-30T23:59:59", "a_demo", "ann", "100"),
        ("2026-05-01T00:00:00", "a_demo", "ann", "12.75"),
        ("2026-05-14T12:00:00", "A_Demo", "Ann", "0.25"),
        ("2026-05-31T23:59:59", "a_demo", "bob", "0.50"),
        ("2026-05-31T23:59:59", "gone", "bob", "3"),
        ("2026-05-02T00:00:00", "", "bob", "9"),
        ("2026-06-01T00:00:00", "a_demo", "ann", "100"),
    )
    backend = on_stand_in(mam)
    assert isinstance(backend, UsageReader)
    usage = backend.usage(MAY)
    assert usage.accounts == {
        "a_demo": AccountUsage(counts("13.5"), {"ann": counts("13"), "bob": counts("0.5")}),
        "gone": AccountUsage(counts("3"), {"bob": counts("3")}),
    }
    assert (usage.records, usage.scale, usage.live, usage.query) == (5, SCALE, (), MAY)
    assert backend.executed == {"read": 1}
    assert mam.calls() == [
        "mam-list-usagerecords --raw --quiet --show Account,User,Charge -s 2026-05-01T00:00:00 "
        "-e 2026-05-31T23:59:59"
    ]


@pytest.mark.parametrize(
    ("month", "zone", "last"),
    [
        (Month(2026, 3), TALLINN, "2026-03-31"),
        (Month(2024, 2), "UTC", "2024-02-29"),
        (Month(2025, 12), "America/New_York", "2025-12-31"),
        (Month(2026, 10), "Pacific/Auckland", "2026-10-31"),
    ],
)
def test_past_months_begin_and_end_by_the_clocks_of_the_zone(
    mam: StandIn, month: Month, zone: str, last: str
) -> None:
    """Clocks change in three of these months."""
    charged(
        mam,
        (f"{month.first_day}T00:00:00", "a", "ann", "1"),
        (f"{last}T23:59:59", "a", "ann", "2"),
        (f"{month.next.first_day}T00:00:00", "a", "ann", "4"),
        (f"{month.previous.first_day}T23:00:00", "a", "ann", "8"),
        zone=zone,
    )
    usage = on_stand_in(mam).usage(UsageQuery(month, zone))
    assert usage.accounts == {"a": AccountUsage(counts("3"), {"ann": counts("3")})}


def test_amounts_are_summed_before_they_are_rounded(mam: StandIn) -> None:
    charged(mam, *[("2026-05-05T00:00:00", "a", "ann", "0.0000004")] * 5)
    charged(mam, *[("2026-05-05T00:00:00", "a", "bob", "0.1")] * 10)
    usage = on_stand_in(mam).usage(MAY)
    assert usage.accounts["a"].users == {"ann": {"deposit": 2}, "bob": {"deposit": SCALE}}
    assert usage.accounts["a"].total == {"deposit": SCALE + 2}


def test_a_month_of_500_accounts_is_one_command(mam: StandIn) -> None:
    moment = int(datetime(2026, 5, 5, tzinfo=ZoneInfo(TALLINN)).timestamp())
    mam.add_records((moment, f"a_{n}", f"u{job}", "0.25") for n in range(500) for job in range(40))
    backend = on_stand_in(mam)
    usage = backend.usage(MAY)
    assert (usage.records, len(usage.accounts), backend.executed) == (20_000, 500, {"read": 1})
    assert usage.accounts["a_499"].total == counts("10")


def test_a_month_without_jobs_has_no_records(mam: StandIn) -> None:
    usage = on_stand_in(mam).usage(MAY)
    assert (usage.accounts, usage.records) == ({}, 0)


BROKEN: list[tuple[dict[str, Any], type[BackendError]]] = [
    ({"code": 1, "stdout": "a|ann|1\n", "stderr": "lost the server\n"}, BackendUnavailable),
    ({"code": 1, "stderr": "permission denied\n"}, CommandDenied),
    ({"code": 0, "stdout": "a|ann|1\na|an"}, ParseError),
    ({"code": 0, "stdout": "a|ann|1\nnonsense\n"}, ParseError),
    ({"code": 0, "stdout": "a|ann|1.x\n"}, ParseError),
]


@pytest.mark.parametrize(("rule", "error"), BROKEN)
def test_an_answer_that_is_broken_anywhere_is_none(
    mam: StandIn, rule: dict[str, Any], error: type[BackendError]
) -> None:
    mam.faults(rule)
    with pytest.raises(error):
        on_stand_in(mam).usage(MAY)


def test_the_command_for_one_account_shows_a_person_the_same(mam: StandIn) -> None:
    charged(mam, ("2026-05-01T00:00:00", "a b", "ann", "1"), ("2026-05-01T00:00:00", "b", "ann", "2"))
    command = on_stand_in(mam).usage_command(MAY, "a b")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == "a b|ann|1\n"
    prefixed = on_stand_in(mam, command_prefix=["ssh", "head"]).usage_command(MAY, "x")
    *before, there = shlex.split(prefixed)
    assert before == ["ssh", "head"]
    assert shlex.split(there)[:2] == ["env", f"TZ={TALLINN}"]
