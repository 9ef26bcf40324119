# SPDX-License-Identifier: MIT
"""Figures of passes, as Prometheus reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from agent.config.model import Mode
from agent.core.actions import RemoveMember
from agent.core.errors import BackendUnavailable
from agent.plan.policy.gate import HeldPlan
from agent.run.record import record, write_metrics
from agent.run.results import PassReport, ResourceResult, Result

OFFERING = "0" * 32


def report(**values: object) -> PassReport:
    return PassReport(Mode.MEMBERSHIP_SYNC, OFFERING, 'HPC "one"', **values)  # type: ignore[arg-type]


def read(folder: Path) -> dict[tuple[str, str], float]:
    """Value by name and by the label that is not the offering's."""
    text = (folder / "metrics" / f"{OFFERING}-membership_sync.prom").read_text()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("offering") == OFFERING
            assert sample.labels.pop("name") == 'HPC "one"'
            assert sample.labels.pop("mode") == "membership_sync"
            found[sample.name.removeprefix("waldur_site_"), *sample.labels.values()] = sample.value
    return found  # type: ignore[return-value]


def test_a_pass_leaves_its_figures(tmp_path: Path) -> None:
    held = HeldPlan("abc", "account a", "too many", (RemoveMember(account="a", user="u"),))
    stuck = ResourceResult("1" * 32, Result.STUCK, "a", "no such QoS")
    record(tmp_path, report(in_step=7, held=(held,), resources=[stuck], homes={"made": 2}))
    found = read(tmp_path)
    assert found[("resources_in_step",)] == 7  # type: ignore[index]
    assert found[("held_plans",)] == found[("held_actions",)] == 1  # type: ignore[index]
    assert found["results", "stuck"] == 1
    assert found["homes", "made"] == 2
    assert found[("pass_failed",)] == 1  # type: ignore[index]


def test_the_last_pass_over_everything_counts(tmp_path: Path) -> None:
    record(tmp_path, report(error=BackendUnavailable("slurmdbd is away")))
    assert read(tmp_path)[("pass_failed",)] == 1  # type: ignore[index]
    record(tmp_path, report(in_step=3))
    record(tmp_path, report(error=BackendUnavailable("slurmdbd is away")), subject="1" * 32)
    assert read(tmp_path)[("pass_failed",)] == 0  # type: ignore[index]


def test_a_folder_that_cannot_be_written_stops_no_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metrics").write_text("a file in its place")
    write_metrics(tmp_path, report())
    assert "cannot be written" in caplog.text
