# SPDX-License-Identifier: MIT
"""Consoles of a site on which a plan waits, with an operator and a viewer in the password file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.cli.web import passwords
from agent.cli.web.roles import Role
from agent.config.model import Settings
from agent.run.service import configuration
from tests.agent.cli.web.running import Running, login, serving

AWAY = "redis://127.0.0.1:1/0"


@pytest.fixture
def site_settings(held: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    return with_logins(held[0], monkeypatch)


@pytest.fixture
def console(site_settings: Settings) -> Iterator[Running]:
    with serving(site_settings) as running:
        yield running


@pytest.fixture
def console_beside_waldur(waiting: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A console of a site with its Waldur and its cluster, for passes."""
    with serving(with_logins(waiting[0], monkeypatch)) as running:
        yield running


def with_logins(config: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", AWAY)
    settings, _ = configuration.usable(Path(config), os.environ, with_logins=False)
    logins = [login("ann", Role.OPERATOR), login("vic", Role.VIEWER)]
    passwords.write(settings.state_dir / passwords.NAME, {each.name: each for each in logins})
    return settings
