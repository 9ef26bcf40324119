# SPDX-License-Identifier: MIT
"""`python3 -m waldur_slurm.main [--load-components]`: starts the script that took the place of the oldest service."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from agent.config import legacy_env

EPILOG = (
    "The service itself is `waldur_site_agent -m MODE` now, its components `waldur_site_load_components`; both read "
    "the same variables (docs/migrate.md)."
)


def words(given: list[str], environ: Mapping[str, str]) -> list[str]:
    """Return the script that does what was asked for, with its words. Raises SystemExit with 2 for a wrong option."""
    parser = argparse.ArgumentParser(prog="python3 -m waldur_slurm.main", epilog=EPILOG)
    parser.add_argument(
        "--load-components", action="store_true", help="bring the components into Waldur, and end"
    )
    if parser.parse_args(given).load_components:
        return ["waldur_site_load_components"]
    return ["waldur_site_agent", *(word for mode in legacy_env.modes(environ) for word in ("-m", mode.value))]


if __name__ == "__main__":
    script, *rest = words(sys.argv[1:], os.environ)
    # In place of this process, so that the list of processes shows what runs.
    path = str(Path(sys.executable).with_name(script))
    os.execv(path, [path, *rest])  # noqa: S606  (there is none)
