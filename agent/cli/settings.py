# SPDX-License-Identifier: MIT
"""The settings of commands that start backends: judged together with these."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from agent.cli import options
from agent.config.model import Settings
from agent.run.service import configuration

log = logging.getLogger(__name__)


def load_settings(config_file: Path | None, *, logs_on_stdout: bool = False) -> Settings:
    """Return the settings, with logs and Sentry set up as they say. Raises ConfigError with every problem."""
    settings, warnings = configuration.usable(config_file, os.environ)
    settings = replace(settings, logs_on_stdout=logs_on_stdout)
    options.set_up(settings)
    for warning in warnings:
        log.warning("%s", warning)
    return settings
