# SPDX-License-Identifier: MIT
"""What is charged for, and whose token loads history."""

from __future__ import annotations

import pytest

from agent.config.model import Mode
from agent.core.usage import UsageSource

from .samples import Site, only_offering, root, warnings, with_offering


@pytest.mark.parametrize(
    ("written", "source"), [(None, "requested"), ("requested", "requested"), ("allocated", "allocated")]
)
def test_what_a_job_is_charged_for(site: Site, written: str | None, source: str) -> None:
    loaded = site.load(with_offering("usage_source", written))
    assert only_offering(loaded).usage_source is UsageSource(source)


def test_an_unknown_source_stops_reports_alone(site: Site) -> None:
    loaded = site.load(with_offering("usage_source", "billed"))
    assert set(only_offering(loaded).stopped) == {Mode.REPORT}
    assert "use one of requested, allocated" in warnings(loaded)["offerings[0].usage_source"]


def test_the_staff_token_is_not_read_with_the_configuration(site: Site) -> None:
    """Its file is on the node that loads history, and only its owner may read it."""
    offering = only_offering(site.load(with_offering("staff_token_file", "secrets/staff")))
    assert offering.staff_token_file is not None
    assert offering.staff_token_file.is_absolute()
    assert offering.staff_token_file.parts[-2:] == ("secrets", "staff")
    assert only_offering(site.load(root())).staff_token_file is None


def test_the_name_of_the_reference_for_it(site: Site) -> None:
    tree = with_offering("backend_settings.usage_tres_source", "allocated")
    assert only_offering(site.load(tree, strict=True)).usage_source is UsageSource.ALLOCATED
    tree["offerings"][0]["usage_source"] = "requested"
    contradicting = site.load(tree)
    assert set(only_offering(contradicting).stopped) == {Mode.REPORT}
    assert "they mean the same" in warnings(contradicting)["offerings[0].backend_settings.usage_tres_source"]
