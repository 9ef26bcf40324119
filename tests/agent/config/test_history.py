# SPDX-License-Identifier: MIT
"""Files as sites wrote them for the reference, from 2024 to the candidate of 1.0.8, in our own words: all start, and
`config-check` has no unknown key in them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.model import Mode, Settings
from agent.run.service import configuration

FILES = sorted((Path(__file__).parent / "history").glob("*.yaml"))
ENVIRON = {"SLURM_JWT": "example-token"}
# Keys that are not served yet: their offering starts without the modes they are about.
WAITING = ("not served yet", "not supported yet")
NOT_HERE = "is not installed"


def settings(file: Path) -> Settings:
    loaded = configuration.checked(file, ENVIRON)
    assert loaded.settings is not None, [str(problem) for problem in loaded.problems]
    return loaded.settings


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_starts_and_no_key_in_it_is_unknown(file: Path) -> None:
    offerings = settings(file).offerings
    assert not any(offering.stopped for offering in offerings)
    assert all(offering.backends or offering.backend_type == "portal" for offering in offerings)
    problems = configuration.checked(file, ENVIRON, strict=True).problems
    errors = [
        str(p)
        for p in problems
        if p.severity == "error" and not any(words in p.message for words in (*WAITING, NOT_HERE))
    ]
    assert errors == []
    is_foreign = any(NOT_HERE in problem.message for problem in problems)
    assert is_foreign or not any("unknown key" in problem.message for problem in problems)


def test_what_some_of_them_mean() -> None:
    found = {file.stem: settings(file) for file in FILES}
    assert found["2024-one-cluster"].offerings[0].backends == dict.fromkeys(Mode, "slurm")
    assert [o.backends for o in found["2025-usage-from-elsewhere"].offerings] == [
        {Mode.ORDER_PROCESS: "slurm", Mode.MEMBERSHIP_SYNC: "slurm", Mode.REPORT: "usage-service"},
        {Mode.REPORT: "usage-service"},
    ]
    plugin = found["2025-keys-of-a-plugin"].offerings[0]
    assert plugin.components["storage"].extras == {"portal_kind": "disk"}
    by_month, by_quarter = found["2026-anchors-and-policies"].offerings
    assert by_month.components == by_quarter.components and by_month.periodic_limits_enabled
    events = found["2026-events"]
    assert events.log_shipping.enabled and not events.expose_backend_error_details
    assert events.offerings[0].events.ws_path == "/ws" and events.offerings[0].usage_source == "allocated"
