# SPDX-License-Identifier: MIT
"""Slips that would pass: names of backends that are almost right, and one offering or name written twice."""

from __future__ import annotations

import uuid

import pytest

from agent.config.model import Mode
from agent.run.service import configuration, services

from .samples import OFFERING, UUID, Site, changed, errors, root, warnings


def test_same_offering_twice(site: Site) -> None:
    """The first is served; uuids count in any spelling."""
    dashed = {**OFFERING, "name": "Two", "waldur_offering_uuid": str(uuid.UUID(UUID))}
    twice = root(offerings=[dict(OFFERING), dashed])
    assert (
        "it is the same offering as offerings[0]"
        in errors(site.load(twice, strict=True))["offerings[1].waldur_offering_uuid"]
    )
    loaded = site.load(twice)
    assert "are off for this offering" in warnings(loaded)["offerings[1].waldur_offering_uuid"]
    assert loaded.settings is not None
    assert [set(each.stopped) for each in loaded.settings.offerings] == [set(), set(Mode)]
    assert services.needed(loaded.settings) == {services.Service.ORDER_PROCESS: ("One",)}


def test_one_name_twice(site: Site) -> None:
    twice = root(offerings=[dict(OFFERING), {**OFFERING, "waldur_offering_uuid": "f" * 32}])
    assert (
        "'One' is the name of offerings[0] as well"
        in errors(site.load(twice, strict=True))["offerings[1].name"]
    )
    loaded = site.load(twice)
    assert loaded.settings is not None and not any(each.stopped for each in loaded.settings.offerings)


@pytest.mark.parametrize(
    ("key", "written", "meant"),
    [
        ("order_processing_backend", "slrum", "slurm"),
        ("membership_sync_backend", "SLURM", "slurm"),
        ("reporting_backend", "moba", "moab"),
        ("username_management_backend", "ladp", "ldap"),
    ],
)
def test_a_slip_in_the_name_of_a_backend_is_an_error_and_hides_no_other(
    site: Site, key: str, written: str, meant: str
) -> None:
    offering = changed({**OFFERING, key: written}, "backend_settings.qos_pausd", "x")
    site.load(root(offerings=[offering]))
    found = errors(configuration.checked(site.file, {}, strict=True))
    assert f"(did you mean '{meant}'?) is not installed" in found[f"offerings[0].{key}"]
    assert "did you mean 'qos_paused'" in found["offerings[0].backend_settings.qos_pausd"]


def test_a_slip_in_a_file_of_2024_is_found_too(site: Site) -> None:
    bare = {name: value for name, value in OFFERING.items() if name != "order_processing_backend"}
    site.load(root(offerings=[{**bare, "backend_type": "slrum"}]))
    assert (
        "(did you mean 'slurm'?)"
        in errors(configuration.checked(site.file, {}, strict=True))["offerings[0].backend_type"]
    )


def test_keys_of_a_backend_that_is_elsewhere_are_not_called_unknown(site: Site) -> None:
    offering = changed({**OFFERING, "reporting_backend": "slurm-api"}, "backend_settings.api_place", "x")
    site.load(root(offerings=[offering]))
    found = errors(configuration.checked(site.file, {}, strict=True))
    assert (
        list(found) == ["offerings[0].reporting_backend"]
        and "did you mean" not in found["offerings[0].reporting_backend"]
    )
