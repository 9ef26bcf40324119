# SPDX-License-Identifier: MIT
"""The reference's console scripts under their own names and options, so that a site's habits keep working.

Their exit codes are the reference's: a wrong configuration is 1, a wrong option 2, and what fails for one component,
home or month only is printed, with 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from agent.cli import arguments
from agent.cli.commands import looks, services
from agent.cli.commands import reference as commands
from agent.cli.main import carry_out

MODES = ("order_process", "report", "membership_sync", "event_process")
CONFIG_ERROR = 1


def site_agent() -> NoReturn:
    """`waldur_site_agent [-m MODE] [-c FILE] [--dry-run]`: one service without a broker."""
    _run("waldur_site_agent", commands.site_agent, sys.argv[1:])


def load_components() -> NoReturn:
    """`waldur_site_load_components [-m MODE] [-c FILE]`; options of `load-components` are understood too."""
    _as_before(
        "waldur_site_load_components",
        services.load_components,
        "Create or update the offerings' components in Waldur, as `waldur-site-cluster load-components` does.",
        "--components-may-fail",
    )


def create_homedirs() -> NoReturn:
    """`waldur_site_create_homedirs [-m MODE] [-c FILE]`; options of `create-homedirs` are understood too."""
    _as_before(
        "waldur_site_create_homedirs",
        services.create_homedirs,
        "Make the missing home directories of the offerings' users, as `waldur-site-cluster create-homedirs` does.",
        "--homes-may-fail",
    )


def load_historical_usage() -> NoReturn:
    """`waldur_site_load_historical_usage`: options of `historical-usage`; as before, failed months end with 0."""
    arguments.blank_typed(sys.argv[1:])
    words = ["--months-may-fail", *sys.argv[1:]]
    _run("waldur_site_load_historical_usage", services.historical_usage, words)


def sync_offering_users() -> NoReturn:
    """`waldur_sync_offering_users [-m MODE] [-c FILE]`: usernames only."""
    _as_before(
        "waldur_sync_offering_users",
        commands.sync_offering_users,
        "Give usernames to the offerings' people who have none yet.",
    )


def sync_resource_limits() -> NoReturn:
    """`waldur_sync_resource_limits [-m MODE] [-c FILE]`: the cluster's limits, shown in Waldur, and nothing else."""
    _as_before(
        "waldur_sync_resource_limits",
        commands.sync_resource_limits,
        "Show in Waldur the limits that accounts have on the cluster; change nothing else.",
    )


def diagnostics() -> NoReturn:
    """`waldur_site_diagnostics [-m MODE] [-c FILE]`: checks of each offering."""
    _as_before(
        "waldur_site_diagnostics",
        looks.diagnostics,
        "Check each offering, as `waldur-site-cluster diagnostics` does.",
    )


def diagnose_slurm_account() -> NoReturn:
    """`waldur_site_diagnose_slurm_account ACCOUNT`: one account, in Waldur and on the cluster."""
    _run("waldur_site_diagnose_slurm_account", looks.diagnose_account, sys.argv[1:])


def test_order() -> NoReturn:
    """`waldur_site_test_order`: make an order from a template and check it."""
    _run("waldur_site_test_order", commands.order_check, sys.argv[1:])


def healthz() -> NoReturn:
    """`waldur_site_healthz`: the probes of containers."""
    _run("waldur_site_healthz", commands.probe, sys.argv[1:])


def export_plugin_catalogue() -> NoReturn:
    """`waldur_site_export_plugin_catalogue [-o FILE]`."""
    _run("waldur_site_export_plugin_catalogue", commands.catalogue, sys.argv[1:])


def _as_before(script: str, command: click.Command, description: str, *more: str) -> NoReturn:
    """Run a command with the two options that all scripts have; the mode says nothing there."""
    parser = argparse.ArgumentParser(prog=script, description=description)
    parser.add_argument("-m", "--mode", choices=MODES, help="accepted and ignored, as before")
    parser.add_argument(
        "-c", "--config-file", metavar="FILE", help=f"default: as of `waldur-site-cluster {command.name}`"
    )
    given, others = parser.parse_known_args()
    file = ["--config-file", given.config_file] if given.config_file else []
    _run(script, command, [*file, *more, *others])


def _run(script: str, command: click.Command, words: Sequence[str]) -> NoReturn:
    carry_out(list(words), command, script, config_error=CONFIG_ERROR)
