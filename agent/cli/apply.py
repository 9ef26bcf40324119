# SPDX-License-Identifier: MIT
"""`apply FILE`: carries out a plan that an operator has looked at, while it is still the plan that would be made."""

from __future__ import annotations

from pathlib import Path

from agent.cli.options import number, print_json
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.core.errors import ConfigError
from agent.run.preview import files as plan_files
from agent.run.preview.previews import preview
from agent.run.results import summary
from agent.run.service import log_shipping
from agent.run.site import connect


def command(file: Path, config_file: Path | None, as_json: bool) -> int:
    settings = load_settings(config_file)
    log_shipping.set_up(settings)
    looked_at = plan_files.read(file)
    offering = settings.offering(looked_at.offering)
    if offering is None:
        raise ConfigError(f"the plan is for offering {looked_at.offering}, which is not in {settings.source}")
    if not offering.backend_of(looked_at.mode):
        raise ConfigError(f"{offering.name} has no backend for {looked_at.mode}")
    now = preview(connect(settings, offering, looked_at.mode), looked_at.mode)
    plan_files.check(looked_at, now)
    report = now.apply()
    if as_json:
        print_json(summary([report]))
    else:
        done = sum(outcome.done for outcome in report.outcomes)
        echo(f"{offering.name}: {number(done, 'action')} of {len(report.outcomes)} done")
        for outcome in report.outcomes:
            if outcome.error:
                echo(f"failed: {outcome.action.render()}: {outcome.error}")
        if report.error:
            echo(f"error: {report.error}", err=True)
    return 1 if report.failed or any(outcome.error for outcome in report.outcomes) else 0
