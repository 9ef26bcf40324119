# SPDX-License-Identifier: MIT
"""A closed month on the real SLURM, rolled up: what `usage-check` finds in it, and what a manager's page shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rig import job_rows
from rig.host_zone import set_host_zone
from rig.job_rows import JobRow
from rig.site import configuration
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests import REPOSITORY
from tests.agent.cli.conftest import Command
from tests.agent.cli.usage.world import LAST

pytestmark = pytest.mark.every_slurm(one_of=10)

H = timedelta(hours=1)
ASKED = {"cpu": 2, "mem": 500, "node": 1, "billing": 2}
# As operators find it in the documents.
USAGE = REPOSITORY / "docs" / "usage.md"
SUM_UP = USAGE.read_text().partition("... | ")[2].partition("\n```")[0]
COLUMN = {"requested": "ReqTRES", "allocated": "AllocTRES"}
WHOLE_NODE = {"cpu": 16, "mem": 16_000, "node": 1, "billing": 16}


def rows(plain: str, special: str) -> Iterator[JobRow]:
    """In the account `special` a requeued job, one over the month's end, one on a whole node, one that was suspended
    for an hour of its two.
    """
    noon, end = LAST.start(UTC) + 180 * H, LAST.next.start(UTC)
    yield from job_rows.random_jobs({plain: ["ann", "bob"]}, LAST, 300)
    for run in range(2):
        start = noon + 5 * run * H
        state = ("REQUEUED", "COMPLETED")[run]
        yield JobRow(special, "ann", start, start + (run + 1) * H, ASKED, state=state, id=5_000_001)
    yield JobRow(special, "bob", end - 3 * H, end + H, ASKED)
    yield JobRow(special, "bob", noon, noon + H, ASKED, WHOLE_NODE)
    yield JobRow(special, "ann", noon, noon + 2 * H, ASKED, suspended=((noon + H / 2, noon + 1.5 * H),))


def by_hand(command: str, tres: str, source: str) -> str:
    listed = command.replace("=JobIDRaw,User,State,ReqTRES", f"=JobIDRaw,User,State,{COLUMN[source]}")
    return f"{listed} | {SUM_UP.replace('tres=cpu', f'tres={tres}').replace('source=requested', f'source={source}')}"


@pytest.fixture
def config(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A site of two resources, whose cluster has the rows and has summed up the month; host and cluster are in UTC."""
    set_host_zone("UTC", tmp_path, monkeypatch)
    scenario = Scenario(members_per_project=1, projects_per_customer=2, allocations_per_project=1)
    with SimulatedWaldur(scenario=scenario) as waldur:
        plain, special = (waldur.resource(uuid).backend_id for uuid in waldur.seed.resource_uuids)
        job_rows.add_accounts(slurm, {plain: ["ann", "bob"], special: ["ann", "bob"]})
        job_rows.add(slurm, rows(plain, special))
        job_rows.roll_up(slurm, LAST)
        backend = {"slurm_bin_path": str(slurm.bin_path), "cluster_name": slurm.cluster}
        keys: dict[str, Any] = {"order_processing_backend": "", "reporting_backend": "slurm"}
        yield str(configuration(waldur, tmp_path, backend=backend, **keys))


@pytest.mark.by_commands
def test_a_rolled_up_month_is_counted_alike_and_what_the_reference_loses_is_named(
    config: str, slurm: SlurmCluster, command: Command, tmp_path: Path
) -> None:
    (found,) = command("usage-check", "--json", "-c", config).document()["offerings"]
    assert (found["month"], found["sreport_unknown"], found["allocated_equals_sreport"]) == (
        str(LAST),
        None,
        True,
    )
    by_name = {account["account"]: account for account in found["accounts"]}
    (special,) = (a for a in by_name.values() if a["tres_seconds"]["cpu"]["requeues"])
    hours = 3600 * 2
    assert special["tres_seconds"]["cpu"] == {
        "reference": hours * (2 + 3 + 1 + 1) - 2,
        "requested": hours * (1 + 2 + 3 + 1 + 1),
        "allocated": hours * (1 + 2 + 3 + 1) + 16 * 3600,
        "sreport": hours * (1 + 2 + 3 + 1) + 16 * 3600,
        "requeues": hours,
        "last_second": 2,
    }
    amounts = special["amounts"]["cpu"]
    assert (amounts["reference"], amounts["requested"], amounts["allocated"]) == ("14.00", "16.00", "30.00")
    for source, tres in (
        ("requested", "cpu"),
        ("requested", "mem"),
        ("allocated", "cpu"),
        ("allocated", "mem"),
    ):
        found_by_hand = slurm.ask("sh", "-c", by_hand(special["command"], tres, source)).strip()
        assert found_by_hand == str(special["tres_seconds"][tres][source])
    said = command("usage-check", "-c", config).out
    total = found["total"]["tres_seconds"]["cpu"]["allocated"]
    assert f"AllocTRES equals sreport: yes, {total:,} cpu-seconds" in said
    assert "7,200 in earlier runs of requeued jobs, 2 in the last second of the month" in said

    document = command("usage", "--months", "3", "--json", "-c", config).document()["offerings"][0]
    shown = next(a for a in document["accounts"] if a["account"] == special["account"])
    assert Decimal(shown["usage"][str(LAST)]["cpu"]) == Decimal(amounts["requested"])
    page = tmp_path / "usage.html"
    assert command("usage", "--months", "2", "--html", page, "-c", config).code == 0
    assert special["account"] in page.read_text()
