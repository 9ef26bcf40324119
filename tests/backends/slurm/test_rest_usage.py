# SPDX-License-Identifier: MIT
"""Usage through the real slurmrestd is what sacct has: jobs of every kind, in months of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.core.periods import Month
from agent.core.usage import JobUse, UsageQuery, UsageSource
from rig import job_rows
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import by_rest, connector
from tests.backends.slurm.test_usage_real import MEMBERS, TALLINN, TOKYO, rows

BUSY = Month(2026, 1)
MONTHS = (
    "2026-01",
    "2025-09",
    "2025-10",
    "2025-11",
    "2026-02",
    "2026-03",
    "2026-04",
    "2026-05",
    "2026-06",
    "2026-07",
)
Pair = tuple[Any, Any]


@pytest.fixture(scope="module")
def both(
    real_slurmrestd: Slurmrestd,
    module_environment: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Pair:
    """Backends of slurmrestd and of sacct on the same cluster; the account `gone` is deleted since."""
    cluster = real_slurmrestd.cluster
    job_rows.add_accounts(cluster, MEMBERS)
    job_rows.add(cluster, rows())
    job_rows.add(cluster, job_rows.random_jobs({"steady": ["ann", "bob"]}, BUSY, 200))
    # Whoever is new has the first account as default, which newer releases do not take away.
    cluster.run("sacctmgr", "-i", "modify", "user", "where", "name=ann,bob", "set", "DefaultAccount=steady")
    for what in ("user where name=ann,bob account=gone", "account where name=gone"):
        cluster.ask("sacctmgr", "-i", "remove", *what.split())
    module_environment.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    state: Path = tmp_path_factory.mktemp("usage")
    return by_rest(real_slurmrestd.access, state)(), connector(str(cluster.bin_path), state)()


@pytest.mark.parametrize("zone", ["UTC", TALLINN, TOKYO])
@pytest.mark.parametrize("source", list(UsageSource))
def test_every_month_is_to_the_second_what_sacct_has(both: Pair, zone: str, source: UsageSource) -> None:
    by_request, by_command = both
    found = {name: UsageQuery(Month.parse(name), zone, source) for name in MONTHS}
    usages = {name: by_request.usage(query) for name, query in found.items()}
    assert usages == {name: by_command.usage(query) for name, query in found.items()}
    assert {account for usage in usages.values() for account in usage.accounts} >= {
        "steady",
        "border",
        "gone",
    }


def test_single_jobs_are_read_run_by_run_as_by_sacct(both: Pair) -> None:
    query = UsageQuery(Month(2026, 5))
    ids = ["5000001", "6000000", "6000001"]
    used = [sorted(backend.job_uses(query, ids), key=_run) for backend in both]
    assert used[0] == used[1]
    assert len(used[0]) == 5


def _run(use: JobUse) -> tuple[str, str]:
    return use.id, use.submitted


def test_a_busy_month_is_read_in_pieces(
    both: Pair, real_slurmrestd: Slurmrestd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_request, _ = both
    query = UsageQuery(BUSY)
    version = by_request.usage_command(query, "steady").partition("slurmdb/")[2].partition("/")[0]
    monkeypatch.setattr("backends.slurm.rest.backend.ANSWER_BYTES", 200_000)
    pieces = by_rest({**real_slurmrestd.access, "api_version": version}, tmp_path)()
    assert pieces.usage(query) == by_request.usage(query)
    assert pieces.executed["read"] > 2
