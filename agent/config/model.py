# SPDX-License-Identifier: MIT
"""The settings of one agent, frozen. Built by `agent.config.load`, read by everybody, changed by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from agent.config.secret import Secret, SecretUrl
from agent.core.account_names import NameRules
from agent.core.homes import HomeRules
from agent.core.model import Component
from agent.core.periodic import LimitType
from agent.core.policy import LimitsSource, PolicyRules
from agent.core.project_directories import DirectoryRules
from agent.core.usage import UsageSource


class Mode(StrEnum):
    """What the agent does for an offering; each mode may use a backend of its own."""

    ORDER_PROCESS = "order_process"
    MEMBERSHIP_SYNC = "membership_sync"
    REPORT = "report"


class Severity(StrEnum):
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about the configuration: where (`offerings[0].backend_settings.qos_pause`), and what to do.

    `strict_error` marks a warning that `config-check` and `strict: true` make an error (`findings.judged`);
    `stops` are the modes that its offering has to do without until then.
    """

    severity: Severity
    path: str
    message: str
    strict_error: bool = field(default=False, compare=False)
    stops: frozenset[Mode] = field(default=frozenset(), compare=False)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.severity, self.path, self.message) if part)


@dataclass(frozen=True, slots=True)
class OidcClient:
    """Client credentials for a token endpoint; the access token goes out as `Bearer`."""

    token_url: str
    client_id: str
    client_secret: Secret


@dataclass(frozen=True, slots=True)
class WaldurAccess:
    """How to reach Waldur for one offering. `url` ends in a slash; one of `token` and `oidc` is used."""

    url: str
    token: Secret | None = None
    oidc: OidcClient | None = None
    verify_ssl: bool = True
    ca_file: str = ""
    proxy: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Which broker tells of changes, and where it is (read by the event bridge). Without `ws_path`: plain TCP."""

    stomp_enabled: bool = False
    mqtt_enabled: bool = False
    membership_by_events: bool = False
    ws_host: str = ""
    ws_port: int = 443
    ws_path: str = "/rmqws-stomp"
    use_tls: bool = True


@dataclass(frozen=True, slots=True)
class OrderHookSettings:
    """A program of the site that decides on pending orders: an absolute path and its arguments."""

    command: tuple[str, ...] = field(repr=False)
    timeout_s: int = 30


@dataclass(frozen=True, slots=True)
class Offering:
    """One offering. `backend_settings` is the raw map for the backend's own schema, and for nothing else.

    `path` is where it stands in the file (`offerings[0]`); `command_prefix` goes before every command of the
    cluster (`docker exec slurmctld`).
    `stopped` has a sentence for each mode that a value of this offering makes unusable. `staff_token_file` is read
    when history is loaded, on the node that does it. `keeps_unmanaged`: users whom Waldur does not know stay in their
    accounts; None where the file does not say.
    """

    name: str
    uuid: str
    access: WaldurAccess
    backend_type: str
    backends: Mapping[Mode, str]
    backend_settings: Mapping[str, Any] = field(repr=False)
    components: Mapping[str, Component]
    queue: str = "default"
    names: NameRules = field(default_factory=NameRules)
    soft_delete: bool = False
    username_backend: str = "base"
    events: EventSettings = field(default_factory=EventSettings)
    resource_import_enabled: bool = False
    username_reconciliation_enabled: bool = False
    path: str = ""
    homes: HomeRules = field(default_factory=HomeRules)
    project_directories: DirectoryRules | None = None
    periodic_limits_enabled: bool = False
    periodic_limit_type: LimitType | None = None
    periodic_emulator: bool = False
    command_prefix: tuple[str, ...] = field(default=(), repr=False)
    policy: PolicyRules = field(default_factory=PolicyRules)
    limits_source: LimitsSource = LimitsSource.CLUSTER
    usage_source: UsageSource = UsageSource.REQUESTED
    omits_lower_usage: bool = False
    staff_token_file: Path | None = None
    keeps_unmanaged: bool | None = None
    order_hook: OrderHookSettings | None = None
    stopped: Mapping[Mode, str] = field(default_factory=lambda: EMPTY)

    def backend_of(self, mode: Mode) -> str:
        """Return the backend's entry-point name, empty where this mode is switched off."""
        return self.backends.get(mode, "")


@dataclass(frozen=True, slots=True)
class Periods:
    """How often beat starts a pass of each mode, in minutes."""

    order_process_minutes: float = 5
    report_minutes: float = 30
    membership_sync_minutes: float = 5
    reconciliation_minutes: float = 60

    def minutes_of(self, mode: Mode) -> float:
        return {
            Mode.ORDER_PROCESS: self.order_process_minutes,
            Mode.MEMBERSHIP_SYNC: self.membership_sync_minutes,
            Mode.REPORT: self.report_minutes,
        }[mode]


@dataclass(frozen=True, slots=True)
class LogShipping:
    enabled: bool = False
    interval_seconds: int = 60
    buffer_mb: int = 1
    log_level: str = "WARNING"


# Days of a month in which the last figures of the month before are sent for single keys of resources.
FINAL_REPORT_DAYS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """All that the agent was told. `source` names the file, or the environment, for messages."""

    offerings: tuple[Offering, ...]
    source: str = ""
    timezone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    log_level: str = "INFO"
    log_format: str = ""
    sentry_dsn: Secret | None = None
    sentry_environment: str = ""
    sentry_monitors: bool = False
    heartbeat_path: str = ""
    elastic_apm_server_url: str = ""
    reporting_periods: int = 2
    api_key_final_report_days: int = FINAL_REPORT_DAYS
    expose_backend_error_details: bool = True
    log_shipping: LogShipping = field(default_factory=LogShipping)
    periods: Periods = field(default_factory=Periods)
    broker_url: SecretUrl = field(default_factory=lambda: SecretUrl("redis://127.0.0.1:6379/0"))
    state_dir: Path = Path("/var/lib/waldur-site-cluster")
    strict: bool = False

    def offering(self, uuid_hex: str) -> Offering | None:
        return next((o for o in self.offerings if o.uuid == uuid_hex), None)


EMPTY: Mapping[Any, Any] = MappingProxyType({})
