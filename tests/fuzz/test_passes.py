# SPDX-License-Identifier: MIT
"""Broken answers of Waldur through whole passes: a part of what the benchmark `fuzz` runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rig import fuzz_passes, fuzzing
from tests.scale import FULL

INPUTS = 2000 if FULL else 80
ODD: tuple[dict[str, Any], ...] = (
    {"limits": {"zz": []}},
    {"limits": {"cpu": {}, "\ud800": "1e1000000"}},
    {"limits": {"cpu": 10**400, "mem": float("nan")}},
    {"name": "half \ud800", "slug": "\x00", "attributes": {"name": []}},
    {"backend_metadata": {"account_state": [10**400], "\ud800": float("inf")}},
)


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(900)
def test_broken_answers_cost_nothing_and_end_no_pass_with_an_error_that_is_not_ours(tmp_path: Path) -> None:
    with fuzz_passes.fuzzed_site(tmp_path) as site:
        found = fuzzing.run(fuzz_passes.targets(site), INPUTS)
    assert found.uncaught == []
    assert found.inputs == INPUTS
    assert found.refused > 0.1 * INPUTS, "broken enough to be refused"


@pytest.mark.timeout(300)
def test_one_odd_row_stops_no_pass_and_harms_no_other(tmp_path: Path) -> None:
    with fuzz_passes.fuzzed_site(tmp_path) as site:
        ends = ("resources/, one row", "orders/, one row")
        rows = [each for each in fuzz_passes.targets(site) if each.name.endswith(ends)]
        assert len(rows) == 5
        for target in rows:
            for odd in ODD:
                for _ in ("limits of Waldur", "limits of the cluster"):
                    target.read({**target.samples[0], **odd})


def test_what_a_pass_has_cost_is_seen(tmp_path: Path) -> None:
    with fuzz_passes.fuzzed_site(tmp_path) as site:
        site.reset()
        assert site.harm().things == frozenset()
        state, resource = site.backend.state, next(iter(site.waldur.store.resources))
        left, *stay = sorted(state.associations, key=lambda each: (each.account, each.user))
        site.backend.state = replace(state, associations=frozenset(stay))
        site.waldur.site.change("resources", resource.uuid, state="Erred")
        assert site.harm().things == {
            ("member", left.account, left.user),
            ("resource", resource.uuid),
        }
