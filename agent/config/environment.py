# SPDX-License-Identifier: MIT
"""The environment variables that work beside a YAML file, and the folders that follow from them.

A variable wins over the same thing in YAML; only `REQUESTS_VERIFY_SSL` is a default that a key overrides.
An empty variable counts as not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from marshmallow import ValidationError

from agent.config import field_types
from agent.config.findings import Findings
from agent.config.model import Periods

STATE_FOLDER = Path("/var/lib/waldur-site-cluster")
# Gone with the next start of the host, as the locks in it are.
LOCK_FOLDER = Path("/run/waldur-site-cluster")
LOG_LEVEL = "WALDUR_SITE_AGENT_LOG_LEVEL"
LOG_FORMAT = "WALDUR_SITE_AGENT_LOG_FORMAT"
BROKER_URL = "WALDUR_SITE_AGENT_BROKER_URL"
CELERY_BROKER_URL = "CELERY_BROKER_URL"
STATE_DIR = "WALDUR_SITE_AGENT_STATE_DIR"
LOCK_DIR = "WALDUR_SITE_AGENT_LOCK_DIR"
SYSTEMD_STATE_DIR = "STATE_DIRECTORY"
HEARTBEAT_PATH = "WALDUR_SITE_AGENT_HEARTBEAT_PATH"
VERIFY_SSL = "REQUESTS_VERIFY_SSL"
# Sites with an authority of their own set it for the reference, whose HTTP library reads it.
CA_FILE = "SSL_CERT_FILE"
IGNORED_VERIFY_SSL = "WALDUR_VERIFY_SSL"
# Of the reference, whose loops and watchdog they are for.
WITHOUT_EFFECT = {
    IGNORED_VERIFY_SSL: f"use `verify_ssl` in YAML, or {VERIFY_SSL}",
    "WALDUR_SITE_AGENT_STOMP_UNHEALTHY_AFTER_MINUTES": "the bridge connects again by itself, and polls go on meanwhile",
    "WALDUR_SITE_AGENT_STOMP_HANDLER_STUCK_AFTER_MINUTES": "tasks have time limits of their own",
    "WALDUR_SITE_AGENT_RESOURCE_STATUS_RECONCILIATION_MINUTES": "each pass over members looks at the states as well; "
    "WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES says how often, with events",
}
SENTRY_DSN = "SENTRY_DSN"
SENTRY_ENVIRONMENT = "SENTRY_ENVIRONMENT"
PERIODS = {
    "order_process_minutes": "WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES",
    "report_minutes": "WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES",
    "membership_sync_minutes": "WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES",
    "reconciliation_minutes": "WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES",
}


@dataclass(frozen=True, slots=True)
class Variables:
    """What the environment says; None or empty where it says nothing."""

    log_level: str | None = None
    log_format: str = ""
    sentry_dsn: str = ""
    sentry_environment: str = ""
    broker_url: str = ""
    state_dir: str = ""
    heartbeat_path: str = ""
    verify_ssl: bool = True
    periods: Periods = field(default_factory=Periods)


def read_variables(environ: Mapping[str, str], findings: Findings) -> Variables:
    """Read all variables; one that cannot be used is a problem under its own name."""

    def read(name: str, kind: Callable[[Any], Any], default: Any = None) -> Any:
        return variable(environ, name, kind, default=default, findings=findings)

    for name, instead in WITHOUT_EFFECT.items():
        if environ.get(name):
            findings.warn(name, f"it has no effect here: {instead}")
    minutes = {name: read(text, field_types.number(above=0)) for name, text in PERIODS.items()}
    return Variables(
        log_level=read(LOG_LEVEL, field_types.log_level),
        log_format=read(LOG_FORMAT, field_types.choice("json", "text"), ""),
        sentry_dsn=read(SENTRY_DSN, field_types.secret_url, ""),
        sentry_environment=read(SENTRY_ENVIRONMENT, field_types.text, ""),
        broker_url=read(BROKER_URL, field_types.broker_url)
        or read(CELERY_BROKER_URL, field_types.broker_url, ""),
        state_dir=read(STATE_DIR, field_types.text, ""),
        heartbeat_path=read(HEARTBEAT_PATH, field_types.text, ""),
        verify_ssl=read(VERIFY_SSL, field_types.flag, True),
        periods=Periods(**{name: value for name, value in minutes.items() if value is not None}),
    )


def variable(
    environ: Mapping[str, str], name: str, kind: Callable[[Any], Any], *, default: Any, findings: Findings
) -> Any:
    """Return one variable, converted; `default` when it is not set or not usable."""
    written = environ.get(name, "").strip()
    if not written:
        return default
    try:
        return kind(written)
    except ValidationError as refusal:
        for sentence in refusal.messages:
            findings.error(name, f"`{name}` {sentence}")
        return default


def default_state_dir(environ: Mapping[str, str], *, is_root: bool, system: Path = STATE_FOLDER) -> Path:
    """Return where state lives when nobody says: systemd's StateDirectory, the system's folder, the user's own.

    The user's own only on hosts without the system's folder: where it exists, an operator who may not write there
    must be told so, for with another folder he would hold other locks than the workers.
    """
    granted = environ.get(SYSTEMD_STATE_DIR, "").split(":")[0]
    if granted:
        return Path(granted)
    if is_root or os.path.isdir(system):
        return system
    home = Path(environ.get("HOME") or os.path.expanduser("~"))
    own = Path(environ.get("XDG_STATE_HOME", ""))
    return (own if own.is_absolute() else home / ".local" / "state") / system.name


def shared_lock_dir(environ: Mapping[str, str], *, is_root: bool) -> Path | None:
    """Return where agents with different state_dirs lock each other out; None where nothing says so, but for root."""
    written = environ.get(LOCK_DIR, "").strip()
    if written:
        return Path(written).absolute()
    return LOCK_FOLDER if is_root else None
