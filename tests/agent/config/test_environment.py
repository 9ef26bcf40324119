# SPDX-License-Identifier: MIT
"""Variables next to a YAML file: what wins over what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config.environment import Variables, default_state_dir, read_variables, shared_lock_dir
from agent.config.findings import Findings
from agent.config.model import Mode, Periods
from agent.config.secret import Secret, SecretUrl

from .samples import Site, errors, only_offering, root, warnings, with_offering

BROKER = "redis://127.0.0.1:6379/0"
WINS = [
    ({}, {}, "log_level", "INFO"),
    ({"log_level": "DEBUG"}, {"WALDUR_SITE_AGENT_LOG_LEVEL": "error"}, "log_level", "ERROR"),
    ({"log_level": "DEBUG"}, {"WALDUR_SITE_AGENT_LOG_LEVEL": ""}, "log_level", "DEBUG"),
    ({}, {"SENTRY_DSN": "https://k@s/1"}, "sentry_dsn", Secret("https://k@s/1")),
    ({"sentry_dsn": "https://k@y/2"}, {"SENTRY_DSN": "https://k@s/1"}, "sentry_dsn", Secret("https://k@s/1")),
    ({"sentry_dsn": "https://k@y/2"}, {}, "sentry_dsn", Secret("https://k@y/2")),
    ({}, {"SENTRY_ENVIRONMENT": "stage"}, "sentry_environment", "stage"),
    ({}, {}, "broker_url", SecretUrl(BROKER)),
    ({"broker_url": "amqp://y"}, {}, "broker_url", SecretUrl("amqp://y")),
    ({"broker_url": "amqp://y"}, {"CELERY_BROKER_URL": "amqp://c"}, "broker_url", SecretUrl("amqp://c")),
    (
        {"broker_url": "amqp://y"},
        {"CELERY_BROKER_URL": "amqp://c", "WALDUR_SITE_AGENT_BROKER_URL": "amqp://w"},
        "broker_url",
        SecretUrl("amqp://w"),
    ),
    (
        {"state_dir": "/y"},
        {"WALDUR_SITE_AGENT_STATE_DIR": "/e", "STATE_DIRECTORY": "/s"},
        "state_dir",
        Path("/e"),
    ),
    ({"state_dir": "/y"}, {"STATE_DIRECTORY": "/s"}, "state_dir", Path("/y")),
    ({}, {"STATE_DIRECTORY": "/s:/t"}, "state_dir", Path("/s")),
    ({}, {}, "periods", Periods(5, 30, 5, 60)),
]


@pytest.mark.parametrize(("keys", "environ", "attribute", "meant"), WINS)
def test_what_wins(
    site: Site, keys: dict[str, str], environ: dict[str, str], attribute: str, meant: object
) -> None:
    settings = site.load(root(**keys), environ).settings
    assert getattr(settings, attribute) == meant


def test_state_dir_in_yaml_starts_at_the_file(site: Site) -> None:
    settings = site.load(root(state_dir="state")).settings
    assert settings is not None and settings.state_dir == site.folder / "state"


@pytest.mark.parametrize(
    ("environ", "is_root", "meant"),
    [
        ({}, True, ""),
        ({"STATE_DIRECTORY": "/run/s"}, False, "/run/s"),
        ({"HOME": "/home/me"}, False, "/home/me/.local/state/waldur-site-cluster"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/xdg"}, False, "/xdg/waldur-site-cluster"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "rel"}, False, "/home/me/.local/state/waldur-site-cluster"),
    ],
)
def test_default_state_dir(environ: dict[str, str], is_root: bool, meant: str) -> None:
    system = Path("/var/lib/nowhere/waldur-site-cluster")
    found = default_state_dir(read_variables(environ, Findings()), environ, is_root=is_root, system=system)
    assert found == (system if is_root else Path(meant))


def test_the_systems_folder_is_the_one_for_everybody_where_it_exists(tmp_path: Path) -> None:
    """With a folder in his home an operator holds other locks than the workers, and writes at the same time."""
    tmp_path.chmod(0o500)
    assert default_state_dir(Variables(), {"HOME": "/home/me"}, is_root=False, system=tmp_path) == tmp_path


def test_roots_state_is_in_the_systems_folder() -> None:
    assert default_state_dir(Variables(), {}, is_root=True) == Path("/var/lib/waldur-site-cluster")


PERIODS = [
    ("ORDER_PROCESS", Mode.ORDER_PROCESS),
    ("REPORT", Mode.REPORT),
    ("MEMBERSHIP_SYNC", Mode.MEMBERSHIP_SYNC),
]


@pytest.mark.parametrize(("word", "mode"), PERIODS)
def test_periods(site: Site, word: str, mode: Mode) -> None:
    settings = site.load(root(), {f"WALDUR_SITE_AGENT_{word}_PERIOD_MINUTES": "0.5"}).settings
    assert settings is not None
    assert settings.periods.minutes_of(mode) == 0.5


def test_reconciliation_period(site: Site) -> None:
    settings = site.load(root(), {"WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES": "90"}).settings
    assert settings is not None and settings.periods.reconciliation_minutes == 90


REFUSED = [
    ("WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES", "0", "use a number greater than 0"),
    ("WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES", "often", "use a number greater than 0"),
    ("WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES", "nan", "use a number greater than 0"),
    ("WALDUR_SITE_AGENT_LOG_LEVEL", "LOUD", "use one of DEBUG"),
    ("REQUESTS_VERIFY_SSL", "perhaps", "use true or false"),
    ("SENTRY_DSN", "s3cret", "is ***; it must start with http:// or https://"),
    ("WALDUR_SITE_AGENT_BROKER_URL", "s3cret", "is ***; write something like redis://"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), REFUSED)
def test_refused(site: Site, name: str, value: str, sentence: str) -> None:
    loaded = site.load(root(), {name: value})
    assert loaded.settings is None
    assert sentence in errors(loaded)[name]
    assert "s3cret" not in errors(loaded)[name]


@pytest.mark.parametrize(
    ("key", "variable", "verified"),
    [
        (None, "", True),
        (None, "false", False),
        (None, "yes", True),
        (True, "false", True),
        (False, "true", False),
    ],
)
def test_verification(site: Site, key: bool | None, variable: str, verified: bool) -> None:
    loaded = site.load(with_offering("verify_ssl", key), {"REQUESTS_VERIFY_SSL": variable})
    assert only_offering(loaded).access.verify_ssl is verified
    assert ("offerings[0].verify_ssl" in warnings(loaded)) is not verified


def test_variable_without_effect(site: Site) -> None:
    loaded = site.load(root(), {"WALDUR_VERIFY_SSL": "false"}, strict=True)
    assert only_offering(loaded).access.verify_ssl
    assert "no effect" in warnings(loaded)["WALDUR_VERIFY_SSL"]


@pytest.mark.parametrize(
    ("environ", "is_root", "meant"),
    [
        ({}, True, Path("/run/waldur-site-cluster")),
        ({}, False, None),
        ({"WALDUR_SITE_AGENT_LOCK_DIR": "/srv/locks"}, True, Path("/srv/locks")),
        ({"WALDUR_SITE_AGENT_LOCK_DIR": "/srv/locks"}, False, Path("/srv/locks")),
        ({"WALDUR_SITE_AGENT_LOCK_DIR": " "}, False, None),
    ],
)
def test_where_agents_with_different_state_dirs_meet(
    environ: dict[str, str], is_root: bool, meant: Path | None
) -> None:
    assert shared_lock_dir(read_variables(environ, Findings()), is_root=is_root) == meant
