# SPDX-License-Identifier: MIT
"""`waldur_sync_resource_limits`: show in Waldur the limits that accounts have on the cluster; change nothing else."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import offerings_with_members
from agent.cli.run import pass_each, print_passes
from agent.cli.settings import load_settings
from agent.config.model import Mode
from agent.run import passes


def command(config_file: Path | None, offering_uuid: str | None) -> int:
    settings = load_settings(config_file)
    served = offerings_with_members(settings, offering_uuid, "no limits are reported")
    passed = pass_each(settings, served, Mode.MEMBERSHIP_SYNC, passes.report_limits)
    print_passes(passed)
    return 1 if any(report.error for _, report in passed) else 0
