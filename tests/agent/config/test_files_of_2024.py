# SPDX-License-Identifier: MIT
"""A file as in 2024, before backends had keys of their own: the kind of backend serves all modes."""

from __future__ import annotations

from pathlib import Path

import pytest

import beat_schedule as table
from agent.config.model import Mode
from agent.run.service import configuration

from .samples import OFFERING, UUID, Site, changed, only_offering, root, warnings
from .test_wrong_values import write

KEYS = ("order_processing_backend", "membership_sync_backend", "reporting_backend")
OF_2024 = """
sentry_dsn: ""
offerings:
  - name: A cluster
    waldur_api_url: "http://localhost:8081/api/"
    waldur_api_token: t0ken
    waldur_offering_uuid: {uuid}
    backend_type: SLURM
    backend_settings:
      default_account: root
      customer_prefix: hpc_
      project_prefix: hpc_
      allocation_prefix: hpc_
      allocation_name_max_len: 34
      enable_user_homedir_account_creation: true
    backend_components:
      cpu: {{limit: 10, measured_unit: k-Hours, unit_factor: 60000, accounting_type: usage, label: CPU}}
"""


def test_it_serves_all_modes(site: Site) -> None:
    loaded = site.load_text(OF_2024.format(uuid=UUID), strict=True)
    assert only_offering(loaded).backends == dict.fromkeys(Mode, "slurm")
    assert "it serves all modes" in warnings(loaded)["offerings[0].backend_type"]
    assert loaded.settings is not None
    assert {slot.task for slot in table.slots(loaded.settings)} >= set(table.TASK_OF.values())


@pytest.mark.parametrize("key", [*KEYS, "username_management_backend"])
@pytest.mark.parametrize("value", ["", None])
def test_one_key_that_is_written_says_that_the_others_are_left_out(
    site: Site, key: str, value: str | None
) -> None:
    bare = {name: value for name, value in OFFERING.items() if name not in KEYS}
    loaded = site.load(root(offerings=[{**bare, key: value}]))
    assert only_offering(loaded).backends == {}
    assert "nothing is scheduled for it" in warnings(loaded)["offerings[0]"]


@pytest.mark.parametrize("kind", ["moab", "MOAB", "freeipa"])
def test_another_kind_of_backend_runs_nothing_as_in_the_reference(tmp_path: Path, kind: str) -> None:
    bare = {name: value for name, value in OFFERING.items() if name not in KEYS}
    loaded = configuration.checked(write(tmp_path, changed(bare, "backend_type", kind)), {})
    assert only_offering(loaded).backends == {}
    (said,) = [message for message in warnings(loaded).values() if "nothing is scheduled for it" in message]
    assert f"Write those of `order_processing_backend: {kind.lower()}`, `membership_sync_backend" in said


def test_kinds_are_told_apart_offering_by_offering(site: Site) -> None:
    bare = {name: value for name, value in OFFERING.items() if name not in KEYS}
    moab = {**bare, "name": "Two", "waldur_offering_uuid": "f" * 32, "backend_type": "moab"}
    loaded = site.load(root(offerings=[bare, moab]))
    assert loaded.settings is not None
    assert [set(each.backends) for each in loaded.settings.offerings] == [set(Mode), set()]


@pytest.mark.parametrize(
    ("written", "is_advised"), [({}, True), ({"timezone": ""}, True), ({"timezone": "UTC"}, False)]
)
def test_an_omitted_timezone_is_utc_and_named(site: Site, written: dict[str, str], is_advised: bool) -> None:
    """One document of the reference has the system's there; its code has UTC."""
    loaded = site.load(
        root(**written, offerings=[changed(OFFERING, "reporting_backend", "slurm")]), strict=True
    )
    assert loaded.settings is not None and str(loaded.settings.timezone) == "UTC"
    assert ("timezone" in dict(configuration.advice(loaded.settings))) is is_advised
    without_reports = site.load(root(**written)).settings
    assert without_reports and "timezone" not in dict(configuration.advice(without_reports))
