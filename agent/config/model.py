# SPDX-License-Identifier: MIT
"""The settings of one agent, frozen. Built by `agent.config.load`; nothing changes them afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from agent.config import field_types
from agent.config.field_types import (
    Command,
    IpNetwork,
    Several,
    Text,
    log_level,
    name_text,
    names,
    number,
    program,
    whole,
)
from agent.config.keys import WrongValue, key, required
from agent.config.secret import Secret, SecretUrl
from agent.core.account_names import NameRules
from agent.core.components import Component, UsageSource
from agent.core.homes import HomeRules
from agent.core.modes import Mode as Mode
from agent.core.periodic import LimitType
from agent.core.policy import LimitsSource, PolicyRules
from agent.core.project_directories import DirectoryRules


class Severity(StrEnum):
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about the configuration: where, and what to do."""

    severity: Severity
    # Such as `offerings[0].backend_settings.qos_pause`.
    path: str
    message: str
    # A warning that `config-check` and `strict: true` make an error (`findings.with_strict_errors`).
    strict_error: bool = field(default=False, compare=False)
    # The modes that its offering has to do without until then.
    stopped_modes: frozenset[Mode] = field(default=frozenset(), compare=False)

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
    """How to reach Waldur for one offering."""

    # Ends in a slash.
    url: str
    # It or OIDC is used, never both.
    token: Secret | None = None
    oidc: OidcClient | None = None
    verify_ssl: bool = True
    ca_file: str = ""
    proxy: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Which broker sends events, and where it is (read by the event bridge)."""

    stomp_enabled: bool = False
    mqtt_enabled: bool = False
    membership_by_events: bool = False
    ws_host: str = ""
    ws_port: int = 443
    # Empty: plain TCP.
    ws_path: str = "/rmqws-stomp"
    use_tls: bool = True


# fmt: off
@dataclass(frozen=True, slots=True)
class OrderHookSettings:
    """A program of the site that decides on pending orders: an absolute path and its arguments."""

    command: tuple[str, ...] = required("a list of words, first the program with its absolute path, such as "
        "`[/etc/waldur/decide, --all]`. Only root and the agent's user may be able to change it, and every file that a "
        "further word names with its absolute path (`[/usr/bin/python3, /etc/waldur/decide.py]`). Write no password "
        "here", of=Command(program), hidden=True)
    timeout_s: int = key(30, "1 to 60", name="timeout_seconds", of=whole(1, 60),
        wrong=WrongValue(fallback="30 seconds count"))
# fmt: on


@dataclass(frozen=True, slots=True)
class Offering:
    """One offering."""

    name: str
    uuid: str
    access: WaldurAccess
    backend_type: str
    backends: Mapping[Mode, str]
    # The raw map for the backend's own schema, and for nothing else.
    backend_settings: Mapping[str, Any] = field(repr=False)
    components: Mapping[str, Component]
    queue: str = "default"
    names: NameRules = field(default_factory=NameRules)
    soft_delete: bool = False
    username_backend: str = "base"
    events: EventSettings = field(default_factory=EventSettings)
    resource_import_enabled: bool = False
    username_reconciliation_enabled: bool = False
    # Where it stands in the file (`offerings[0]`).
    path: str = ""
    homes: HomeRules = field(default_factory=HomeRules)
    project_directories: DirectoryRules | None = None
    periodic_limits_enabled: bool = False
    periodic_limit_type: LimitType | None = None
    periodic_emulator: bool = False
    # Goes before every command of the cluster (`docker exec slurmctld`).
    command_prefix: tuple[str, ...] = field(default=(), repr=False)
    policy: PolicyRules = field(default_factory=PolicyRules)
    limits_source: LimitsSource = LimitsSource.CLUSTER
    usage_source: UsageSource = UsageSource.REQUESTED
    omits_lower_usage: bool = False
    # Read when history is loaded, on the node that does it.
    staff_token_file: Path | None = None
    # Users whom Waldur does not know stay in their accounts; None where the file does not say.
    keeps_unmanaged: bool | None = None
    order_hook: OrderHookSettings | None = None
    # The virtual environment where `reporting_backend` is a backend of the reference.
    plugin_venv: Path | None = None
    # A sentence for each mode that a value of this offering makes unusable.
    stopped: Mapping[Mode, str] = field(default_factory=lambda: EMPTY)
    # Drafts of those that cannot be used: they are judged further.
    draft_components: Mapping[str, Component] = field(default_factory=lambda: EMPTY)
    # The keys of `backend_settings`, and of maps in it, that are declared as secret.
    secret_settings: tuple[str, ...] = ()

    def backend_of(self, mode: Mode) -> str:
        """Return the backend's entry-point name, empty where this mode is switched off."""
        return self.backends.get(mode, "")


# fmt: off
@dataclass(frozen=True, slots=True)
class Periods:
    """How often beat starts a pass of each mode, in minutes: variables of the environment."""

    order_process_minutes: float = key(5, "minutes between two passes over orders; a fraction is allowed, 0 is not",
        name="WALDUR_SITE_AGENT_ORDER_PROCESS_PERIOD_MINUTES", of=number(above=0))
    report_minutes: float = key(30, "minutes between two reports of usage",
        name="WALDUR_SITE_AGENT_REPORT_PERIOD_MINUTES", of=number(above=0))
    membership_sync_minutes: float = key(5, "minutes between two passes over members",
        name="WALDUR_SITE_AGENT_MEMBERSHIP_SYNC_PERIOD_MINUTES", of=number(above=0))
    reconciliation_minutes: float = key(60, "minutes between two passes that repair what events left undone",
        name="WALDUR_SITE_AGENT_RECONCILIATION_PERIOD_MINUTES", of=number(above=0))

    def minutes_of(self, mode: Mode) -> float:
        return float(getattr(self, f"{mode}_minutes"))


@dataclass(frozen=True, slots=True)
class LogShipping:
    enabled: bool = key(False, "ship the log")
    interval_seconds: int = key(60, "10 or more", name="ship_interval_seconds", of=whole(10))
    buffer_mb: int = key(1, "1 or more", name="buffer_size_mb", of=whole(1))
    log_level: str = key("WARNING", "the least level that is shipped", of=log_level(),
        wrong=WrongValue(fallback="WARNING is used"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcLogin:
    """Login to the console by a provider of OpenID Connect."""

    issuer: str = required("the provider's address, exactly as its tokens have it; `https://`",
        of=Text(field_types.web_url))
    client_id: str = required("the client's name at the provider", of=name_text(field_types.needed))
    client_secret_file: str = key("", "a file with the client's secret; none for a public client", usual="")
    url: str = required("the console's own address in browsers. `/login/oidc/back` below it is the redirect URI to be "
        "registered", of=Text(field_types.web_url))
    scopes: tuple[str, ...] = key(("openid", "profile"), "what the client asks for; both claims have to come with it "
        "in the ID token", of=names(), usual="`openid`, `profile`")
    name_claim: str = key("preferred_username", "the claim with the name that the journal has: one that people cannot "
        "change, of ASCII letters, digits and `._@+-`")
    role_claim: str = required("the claim with groups or roles, a text or a list; `realm_access.roles` is `roles` in "
        "the map `realm_access`", of=Text(field_types.needed))
    operators: tuple[str, ...] = key((), "its values that make an operator", of=names())
    viewers: tuple[str, ...] = key((), "its values that make a viewer. Whoever has none of both is not let in",
        of=names())


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How browsers reach the console."""

    listen: str = key("127.0.0.1:9466", "where it listens, `HOST:PORT`. Beyond loopback only with a certificate or "
        "behind a proxy that is named here")
    certificate: str = key("", "a file with the console's certificate, and those of the authorities between it and the "
        "root's: it speaks TLS then, and may listen beyond loopback", usual="")
    certificate_key: str = key("", "a file with the certificate's key, without a password",
        usual="the file of `certificate`")
    proxies: tuple[IpNetwork, ...] = key((), "addresses or networks of reverse proxies with TLS. Only what they say in "
        "`X-Forwarded-For` and `X-Forwarded-Proto` is believed", of=Several(Text(field_types.network), or_one=True))
    oidc: OidcLogin | None = key(None, "login by a provider of OpenID Connect, beside the password file, see below")
# fmt: on


# Days of a month in which the last figures of the month before are sent for single keys of resources.
FINAL_REPORT_DAYS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of the agent."""

    offerings: tuple[Offering, ...]
    # Names the file, or the environment, for messages.
    source: str
    timezone: ZoneInfo
    # The file says which; without it months begin in UTC.
    has_timezone: bool
    log_level: str
    log_format: str
    sentry_dsn: Secret | None
    sentry_environment: str
    # For browsers; empty where it is not known.
    flower_url: str
    sentry_monitors: bool
    heartbeat_path: str
    elastic_apm_server_url: str
    reporting_periods: int
    api_key_final_report_days: int
    expose_backend_error_details: bool
    log_shipping: LogShipping
    console: ConsoleSettings
    periods: Periods
    broker_url: SecretUrl
    state_dir: Path
    lock_dir: Path | None
    strict: bool
    # Of a service whose log is all that it prints.
    logs_on_stdout: bool = False

    def offering(self, uuid_hex: str) -> Offering | None:
        return next((o for o in self.offerings if o.uuid == uuid_hex), None)


EMPTY: Mapping[Any, Any] = MappingProxyType({})
