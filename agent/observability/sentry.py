# SPDX-License-Identifier: MIT
"""Errors to Sentry, where the site gave a DSN: no local variables, no personal data, no secrets in URLs."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agent import __version__
from agent.config.model import Settings
from agent.config.secret import MIN_SECRET_LENGTH, is_secret_key, passwords_in, secret_values
from agent.observability import logs

REDACTED = "[REDACTED]"
# Of what a line of the log is about, what events are grouped and searched by.
TAGS = ("offering", "mode", "task", "task_id", "order", "resource", "project", "month")

_SECRET_PARAMETER = re.compile(
    r"((?:secret|secret[_-]?key|api[_-]?key|token|password|passcode)=)[^&\s\"']+", re.IGNORECASE
)
# Up to the last `@`: a password may have `/` and `@` in it. A port with a path behind it is none.
_PASSWORD_IN_URL = re.compile(r"(://[^/\s:@]*:)(?!\d{1,5}/)\S+@")


# Whether errors are sent from this process, and check-ins as well.
_is_on = _has_monitors = False
# A monitor that is late by less than this, in minutes, is not missed: queue and pass take their time.
MARGIN_MINUTES = 10


def set_up(settings: Settings) -> None:
    """Start Sentry's SDK, where there is a DSN. It sends what is logged as ERROR, and exceptions that end a task."""
    global _is_on, _has_monitors
    _is_on = settings.sentry_dsn is not None
    _has_monitors = _is_on and settings.sentry_monitors
    if not settings.sentry_dsn:
        return
    # Imported here: 3.5 MB in each process of the pool, which only sites with a DSN shall pay.
    import sentry_sdk
    from sentry_sdk.integrations.logging import LoggingIntegration

    secrets = secrets_of(settings)
    sentry_sdk.init(
        dsn=settings.sentry_dsn.reveal(),
        environment=settings.sentry_environment or None,
        release=f"waldur-site-cluster@{__version__}",
        include_local_variables=False,
        send_default_pii=False,
        integrations=[LoggingIntegration(event_level=logging.ERROR)],
        before_breadcrumb=lambda crumb, _: redacted(crumb, secrets),
        before_send=lambda event, _: _tagged(redacted(event, secrets)),
    )


def tag(**fields: str) -> None:
    """Put tags on what this task sends from now on, also after its own code has ended."""
    if not _is_on:
        return
    import sentry_sdk

    for name, value in fields.items():
        if name in TAGS and value:
            sentry_sdk.set_tag(name, value)


def check_in(monitor: str, *, is_well: bool, every_minutes: float, seconds: float | None = None) -> None:
    """Report to Sentry's monitor that a recurring run has ended; Sentry makes the monitor where it has none. Does
    nothing without `sentry_monitors`.
    """
    if not _has_monitors:
        return
    from sentry_sdk.crons import capture_checkin

    capture_checkin(
        monitor_slug=monitor,
        status="ok" if is_well else "error",
        duration=seconds,
        monitor_config={
            "schedule": {
                "type": "interval",
                "value": max(1, math.ceil(every_minutes)),
                "unit": "minute",
            },
            "checkin_margin": MARGIN_MINUTES,
            "failure_issue_threshold": 2,
            "recovery_threshold": 1,
            "timezone": "UTC",
        },
    )


def _tagged(event: Any) -> Any:
    """Return an event with tags of what it is about: the offering, the mode, the task."""
    known = {name: value for name, value in logs.context().items() if name in TAGS}
    tags = event.get("tags")
    if known and (tags is None or isinstance(tags, dict)):
        event["tags"] = {**(tags or {}), **known}
    return event


def redacted(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return the same structure without `secrets`, values of secret keys and parameters, and passwords in URLs."""
    if isinstance(value, dict):
        return {key: _kept(key, item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [redacted(item, secrets) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if not isinstance(value, str):
        return value
    for secret in secrets:
        value = value.replace(secret, REDACTED)
    return _PASSWORD_IN_URL.sub(rf"\1{REDACTED}@", _SECRET_PARAMETER.sub(rf"\1{REDACTED}", value))


def _kept(key: Any, value: Any, secrets: Iterable[str]) -> Any:
    is_secret = isinstance(key, str) and (is_secret_key(key) or key.lower() == "authorization")
    return REDACTED if is_secret and isinstance(value, str) and value else redacted(value, secrets)


def secrets_of(settings: Settings) -> Sequence[str]:
    """Return the secrets of the configuration that a library might put into a message."""
    known = passwords_in(settings.broker_url.reveal())
    for offering in settings.offerings:
        access = offering.access
        known += [
            secret.reveal() for secret in (access.token, access.oidc and access.oidc.client_secret) if secret
        ]
        settings_of_backends = secret_values(offering.backend_settings, offering.secret_settings)
        known += [*passwords_in(access.proxy), *settings_of_backends]
    # The longest first: none leaves a part of another.
    return sorted({text for text in known if len(text) >= MIN_SECRET_LENGTH}, key=len, reverse=True)
