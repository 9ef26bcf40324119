# SPDX-License-Identifier: MIT
"""A virtual environment with a plugin for the reference's interface, which a test writes."""

from __future__ import annotations

import sys
import textwrap
import venv
from pathlib import Path

NAME = "tally"
MODULE = "site_tally"
# What each test's plugin begins with; its `used` returns the report of one account.
PLUGIN = """
import logging

TOTAL = "TOTAL_ACCOUNT_USAGE"


class Tally:
    supports_decreasing_usage = False

    def __init__(self, backend_settings, backend_components):
        self.settings, self.components = backend_settings, backend_components

    def ping(self, raise_exception=False):
        return True

    def diagnostics(self):
        print("it is well")
        return True

    def list_components(self):
        return list(self.components)

    def used(self, account):
        return {TOTAL: {"cpu": 1.5}, "ann": {"cpu": 1.5}}

    def _get_usage_report(self, ids):
        return {account: self.used(account) for account in ids}

    def get_usage_report_for_period(self, ids, year, month, waldur_resource=None):
        return self._get_usage_report(ids)


class Plugin(Tally):
"""


def make(folder: Path, methods: str = "pass", *, before: str = "", name: str = NAME) -> Path:
    """Make an environment whose backend `name` has these methods, indented; `before` stands above its class."""
    place = folder / "venv"
    venv.create(place, symlinks=True, with_pip=False)
    packages = place / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    above, _, below = PLUGIN.rpartition("class Plugin")
    body = textwrap.indent(textwrap.dedent(methods).strip("\n"), "    ")
    text = f"{above}{textwrap.dedent(before)}\n\nclass Plugin{below}{body}\n"
    (packages / f"{MODULE}.py").write_text(text, encoding="utf-8")
    about = packages / f"{MODULE}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {MODULE.replace('_', '-')}\nVersion: 1.2\n"
    )
    (about / "entry_points.txt").write_text(f"[waldur_site_agent.backends]\n{name} = {MODULE}:Plugin\n")
    return place
