# SPDX-License-Identifier: MIT
"""The reference's console scripts under their own names and options, so that a site's habits keep working."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from agent.cli import arguments
from agent.cli.main import run

MODES = ("order_process", "report", "membership_sync", "event_process")


def load_components() -> NoReturn:
    """`waldur_site_load_components [-m MODE] [-c FILE]`; options of `load-components` are understood too."""
    _as_before(
        "waldur_site_load_components",
        "load-components",
        "Create or update the offerings' components in Waldur, as `manage.py load-components` does.",
    )


def create_homedirs() -> NoReturn:
    """`waldur_site_create_homedirs [-m MODE] [-c FILE]`; options of `create-homedirs` are understood too."""
    _as_before(
        "waldur_site_create_homedirs",
        "create-homedirs",
        "Make the missing home directories of the offerings' users, as `manage.py create-homedirs` does.",
    )


def load_historical_usage() -> NoReturn:
    """`waldur_site_load_historical_usage`: options of `historical-usage`; as before, failed months end with 0."""
    arguments.blank_typed(sys.argv[1:])
    from agent.cli.backfill.historical_usage import command

    sys.exit(run(["--months-may-fail", *sys.argv[1:]], command, "waldur_site_load_historical_usage"))


def _as_before(script: str, command: str, description: str) -> NoReturn:
    parser = argparse.ArgumentParser(prog=script, description=description)
    parser.add_argument("-m", "--mode", choices=MODES, help="accepted and ignored, as before")
    parser.add_argument("-c", "--config-file", metavar="FILE", help=f"default: as of `manage.py {command}`")
    given, others = parser.parse_known_args()
    file = ["--config-file", given.config_file] if given.config_file else []
    sys.exit(run([command, *file, *others]))
