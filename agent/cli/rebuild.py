# SPDX-License-Identifier: MIT
"""`rebuild`: accounts that Waldur names and the cluster has lost, made again once a person has approved the plan."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import print_json, served_offerings
from agent.cli.output import echo
from agent.cli.run import pass_each, print_passes
from agent.cli.settings import load_settings
from agent.config.model import Mode
from agent.run.membership import rebuild
from agent.run.results import summary
from agent.run.service import log_shipping

MODE = Mode.MEMBERSHIP_SYNC


def command(config_file: Path | None, offering_uuid: str | None, as_json: bool) -> int:
    settings = load_settings(config_file)
    log_shipping.set_up(settings)
    served = served_offerings(settings, offering_uuid, MODE)
    passed = pass_each(settings, served, MODE, rebuild.run_pass)
    if as_json:
        print_json(summary(report for _, report in passed))
    else:
        print_passes([(offering, report) for offering, report in passed if report.results or report.error])
        for offering, report in passed:
            for held in report.held:
                echo(f"{offering.name}: plan {held.short_id} {held.reason}:")
                for action in held.actions:
                    echo(f"  {action.line()}")
                echo(
                    f"Nothing of it is done. `approve {held.short_id}` releases it; then call `rebuild` again."
                )
            if not report.results and not report.error:
                echo(f"{offering.name}: every account that Waldur names is on the cluster")
    return 1 if any(report.failed for _, report in passed) else 0
