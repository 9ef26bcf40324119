# SPDX-License-Identifier: MIT
"""Every key of the configuration with its type and default, as marshmallow schemas: one class per map.

The schemas check single values only. Rules between keys are in `offering`, `backend_settings`, `components`;
keys that only one backend knows are in that backend's own schema. docs/configuration.md lists the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marshmallow import EXCLUDE, Schema, ValidationError, fields

from agent.config import field_types
from agent.config.findings import Findings, below, key_name, unknown_keys
from agent.config.homes import home_folders
from agent.config.model import FINAL_REPORT_DAYS, Mode
from agent.core.periodic import LimitType
from agent.core.policy import (
    JournalFailures,
    LimitCuts,
    LimitsSource,
    PolicyMode,
    PolicyRules,
    UsageDecreases,
)
from agent.core.usage import UsageSource

ACCOUNTING_TYPES = ("usage", "limit", "one")
# Waldur's periodic usage policy owns these; old files have them in components and in `periodic_limits`.
POLICY_KEYS = frozenset(
    {
        "carryover_enabled",
        "carryover_factor",
        "default_carryover_factor",
        "default_grace_ratio",
        "fairshare_decay_half_life",
        "grace_ratio",
        "period_type",
        "qos_levels",
        "qos_strategy",
        "qos_threshold",
        "raw_usage_reset",
        "tres_billing_enabled",
        "tres_billing_weights",
    }
)
EVENT_TRANSPORTS = ("websocket", "tcp")
ALL_MODES = frozenset(Mode)
ORDERS = frozenset({Mode.ORDER_PROCESS})


@dataclass(frozen=True, slots=True)
class WrongValue:
    """The effect of a wrong value that is not an error of the whole file, since the reference starts with it.

    It `stops` modes of its offering, where a guess could harm, or `value` counts `meanwhile`.
    """

    stops: frozenset[Mode] = frozenset()
    value: Any = None
    meanwhile: str = ""


STOPS_ALL = WrongValue(ALL_MODES)
STOPS_ORDERS = WrongValue(ORDERS)
STOPS_MEMBERS = WrongValue(frozenset({Mode.MEMBERSHIP_SYNC}))
STOPS_REPORTS = WrongValue(frozenset({Mode.REPORT}))
UNKNOWN_SOURCE = WrongValue(frozenset({Mode.REPORT}), UsageSource.REQUESTED.value)
WEBSOCKET = WrongValue(value=EVENT_TRANSPORTS[0], meanwhile="events come over a WebSocket")
NO_HOMES = WrongValue(value=False, meanwhile="no homes are made")
WRONG_HOMES = WrongValue(value="", meanwhile="homes are made where the system's user database says")
UNKNOWN_PERIODIC_LIMITS = WrongValue(meanwhile="periodic limits are off")
NO_PERIODIC_LIMITS = WrongValue(value=False, meanwhile="periodic limits are off")
USUAL_UMASK = WrongValue(meanwhile="homes are private, as without this key")


def key(
    kind: Callable[[Any], Any], default: Any = None, wrong: WrongValue | None = None
) -> fields.Field[Any]:
    return fields.Function(deserialize=kind, load_default=default, metadata={"wrong": wrong})


def required(kind: Callable[[Any], Any], wrong: WrongValue | None = None) -> fields.Field[Any]:
    return fields.Function(
        deserialize=kind,
        required=True,
        error_messages={"required": "is missing"},
        metadata={"wrong": wrong},
    )


class SectionSchema(Schema):
    """A map of keys. Unknown ones are left out here and reported by `checked`."""

    class Meta:
        unknown = EXCLUDE


class RootSchema(SectionSchema):
    offerings = required(field_types.anything)
    sentry_dsn = key(field_types.secret_url, "")
    sentry_dsn_file = key(field_types.text, "")
    sentry_dsn_env = key(field_types.text, "")
    sentry_monitors = key(field_types.flag, False)
    elastic_apm_server_url = key(field_types.optional_url, "")
    timezone = key(field_types.time_zone, field_types.time_zone("UTC"))
    global_proxy = key(field_types.secret_text, "")
    log_level = key(field_types.log_level, "INFO")
    reporting_periods = key(field_types.whole(1, 12), 2)
    api_key_final_report_days = key(field_types.whole(0, 28), FINAL_REPORT_DAYS)
    expose_backend_error_details = key(field_types.flag, True)
    log_shipping = key(field_types.mapping, {})
    broker_url = key(field_types.broker_url, "")
    broker_url_file = key(field_types.text, "")
    broker_url_env = key(field_types.text, "")
    state_dir = key(field_types.text, "")
    policy = key(field_types.mapping, {})
    strict = key(field_types.flag, False)


USUAL = PolicyRules()


class PolicySchema(SectionSchema):
    """How far passes may go; at the root for all offerings, and in each offering."""

    mode = key(field_types.choice(*PolicyMode), PolicyMode.SYNC.value)
    paused = key(field_types.flag, False)
    max_removed_members = key(field_types.whole(0), USUAL.max_removed_members)
    max_removed_percent = key(field_types.whole(0, 100), USUAL.max_removed_percent)
    small_removal = key(field_types.whole(0), USUAL.small_removal)
    max_removed_accounts = key(field_types.whole(0), USUAL.max_removed_accounts)
    budgets = key(field_types.mapping, {})
    limit_cuts = key(field_types.choice(*LimitCuts), LimitCuts.HOLD.value)
    usage_decreases = key(field_types.choice(*UsageDecreases), UsageDecreases.HOLD.value)
    journal_failures = key(field_types.choice(*JournalFailures), JournalFailures.GO_ON.value)
    protected_users = key(field_types.names, ())
    protected_accounts = key(field_types.names, ())
    ignore_users = key(field_types.names, ())
    ignore_accounts = key(field_types.names, ())


class BudgetSchema(SectionSchema):
    """How much of one cost to people may come about without an approval."""

    hour = key(field_types.whole(1))
    day = key(field_types.whole(1))


class LogShippingSchema(SectionSchema):
    enabled = key(field_types.flag, False)
    ship_interval_seconds = key(field_types.whole(10), 60)
    buffer_size_mb = key(field_types.whole(1), 1)
    log_level = key(field_types.text, "WARNING")


class OfferingSchema(SectionSchema):
    name = required(field_types.text)
    waldur_api_url = required(field_types.api_url)
    waldur_api_token = key(field_types.secret_text, "")
    waldur_api_token_file = key(field_types.text, "")
    waldur_api_token_env = key(field_types.text, "")
    waldur_offering_uuid = required(field_types.offering_uuid, STOPS_ALL)
    oidc_token_url = key(field_types.optional_url, "")
    oidc_client_id = key(field_types.text, "")
    oidc_client_secret = key(field_types.secret_text, "")
    oidc_client_secret_file = key(field_types.text, "")
    oidc_client_secret_env = key(field_types.text, "")
    verify_ssl = key(field_types.flag)
    backend_type = required(field_types.text)
    backend_settings = key(field_types.mapping, {})
    backend_components = key(field_types.mapping, {})
    order_processing_backend = key(field_types.text, "")
    membership_sync_backend = key(field_types.text, "")
    reporting_backend = key(field_types.text, "")
    username_management_backend = key(field_types.text, "base")
    resource_import_enabled = key(field_types.flag, False)
    username_reconciliation_enabled = key(field_types.flag, False)
    stomp_enabled = key(field_types.flag, False)
    stomp_membership_sync_enabled = key(field_types.flag)
    stomp_ws_host = key(field_types.text, "")
    stomp_ws_port = key(field_types.whole(1, 65535), None, WrongValue(meanwhile="the usual port is taken"))
    stomp_ws_path = key(field_types.text, "")
    websocket_use_tls = key(field_types.flag, True)
    mqtt_enabled = key(field_types.flag, False)
    event_transport = key(field_types.choice(*EVENT_TRANSPORTS), EVENT_TRANSPORTS[0], WEBSOCKET)
    queue = key(field_types.queue_name, "", WrongValue(ALL_MODES, ""))
    order_hook = key(field_types.mapping, {}, WrongValue(ORDERS, {}))
    policy = key(field_types.mapping, {})
    limits_source = key(field_types.choice(*LimitsSource), LimitsSource.CLUSTER.value)
    usage_source = key(field_types.choice(*UsageSource), None, UNKNOWN_SOURCE)
    omit_anomalous_usage_components = key(field_types.flag, False, STOPS_REPORTS)
    staff_token_file = key(field_types.text, "")
    preserve_unmanaged_backend_users = key(field_types.flag, None, STOPS_MEMBERS)


class BackendSettingsSchema(SectionSchema):
    """The keys of `backend_settings` that mean the same for every backend."""

    allocation_prefix = key(field_types.text, "", STOPS_ORDERS)
    project_prefix = key(field_types.text, "", STOPS_ORDERS)
    customer_prefix = key(field_types.text, "", STOPS_ORDERS)
    default_account = key(field_types.text_or_number, "", STOPS_ALL)
    check_backend_id_uniqueness = key(field_types.flag, False, STOPS_ORDERS)
    check_all_offerings = key(field_types.flag, False, STOPS_ORDERS)
    backend_id_max_retries = key(field_types.whole(0), 50, WrongValue(value=50, meanwhile="50 is taken"))
    allocation_name_max_len = key(field_types.whole(0), None, STOPS_ORDERS)
    soft_delete = key(field_types.flag, False, STOPS_ORDERS)
    enable_user_homedir_account_creation = key(field_types.flag, True, NO_HOMES)
    default_homedir_umask = key(field_types.umask, None, USUAL_UMASK)
    homedir_umask = key(field_types.umask, None, USUAL_UMASK)
    homedir_base_path = key(field_types.text, "", WRONG_HOMES)
    homedir_bases = key(home_folders, ())
    homedir_quota = key(field_types.mapping, {}, WrongValue(value={}, meanwhile="homes get no quota"))
    project_directory = key(
        field_types.mapping, {}, WrongValue(value={}, meanwhile="no project directories are made")
    )
    periodic_limits = key(field_types.mapping, {}, WrongValue(value={}, meanwhile="periodic limits are off"))
    cluster_name = key(field_types.text_or_number, "", WrongValue(ALL_MODES, ""))
    command_prefix = key(field_types.command_words, (), WrongValue(ALL_MODES, ()))
    usage_tres_source = key(field_types.choice(*UsageSource), None, UNKNOWN_SOURCE)
    target_api_url = key(field_types.text, "", WrongValue(value="", meanwhile="it is not used"))
    target_api_token = key(field_types.secret_text, "", WrongValue(value="", meanwhile="it is not used"))


class PeriodicLimitsSchema(SectionSchema):
    enabled = key(field_types.flag, False, NO_PERIODIC_LIMITS)
    limit_type = key(field_types.choice(*LimitType), None, NO_PERIODIC_LIMITS)
    emulator_mode = key(field_types.flag, False, UNKNOWN_PERIODIC_LIMITS)
    emulator_base_url = key(field_types.optional_url, "", UNKNOWN_PERIODIC_LIMITS)


class ComponentSchema(SectionSchema):
    measured_unit = required(field_types.text)
    accounting_type = required(field_types.choice(*ACCOUNTING_TYPES))
    label = required(field_types.text)
    unit_factor = key(field_types.number(above=0), 1.0, STOPS_ALL)
    unit_factor_reporting = key(field_types.number(above=0), None, STOPS_REPORTS)
    limit = key(field_types.number(at_least=0), None, STOPS_ALL)
    target_components = key(field_types.mapping, {}, WrongValue(ALL_MODES, {}))
    description = key(field_types.text)
    min_value = key(field_types.whole())
    max_value = key(field_types.whole())
    max_available_limit = key(field_types.whole())
    default_limit = key(field_types.whole())
    limit_period = key(field_types.text)
    article_code = key(field_types.text_or_number)
    is_boolean = key(field_types.flag)
    is_prepaid = key(field_types.flag)
    min_prepaid_duration = key(field_types.whole())
    max_prepaid_duration = key(field_types.whole())
    prepaid_duration_step = key(field_types.whole())
    min_renewal_duration = key(field_types.whole())
    max_renewal_duration = key(field_types.whole())
    renewal_duration_step = key(field_types.whole())


class OrderHookSchema(SectionSchema):
    """A program of the site that decides on pending orders."""

    command = key(field_types.program, (), STOPS_ORDERS)
    timeout_seconds = key(field_types.whole(1, 60), 30, WrongValue(value=30, meanwhile="30 seconds count"))


class TargetSchema(SectionSchema):
    factor = key(field_types.number(above=0), 1.0, WrongValue(ALL_MODES, 1.0))


ROOT = RootSchema()
LOG_SHIPPING = LogShippingSchema()
POLICY = PolicySchema()
BUDGET = BudgetSchema()
OFFERING = OfferingSchema()
BACKEND_SETTINGS = BackendSettingsSchema()
PERIODIC_LIMITS = PeriodicLimitsSchema()
ORDER_HOOK = OrderHookSchema()
COMPONENT = ComponentSchema()
TARGET = TargetSchema()

COMMON_BACKEND_KEYS: frozenset[str] = frozenset(BACKEND_SETTINGS.fields)


def checked(
    schema: Schema, section: Mapping[Any, Any], path: str, *, findings: Findings, open_ended: bool = False
) -> dict[str, Any]:
    """Return the section's values, converted, with the default (or None) for every key not given or not usable.

    A null counts as not given. Keys that the schema lacks are reported, unless the section is `open_ended`.
    """
    if not open_ended:
        findings.add(unknown_keys(section, schema.fields, path))
    given = {key_name(name): value for name, value in section.items() if value is not None}
    values: dict[str, Any] = dict.fromkeys(schema.fields)
    try:
        values.update(schema.load(given))
    except ValidationError as refusal:
        values.update({name: default_of(schema, name) for name in schema.fields})
        values.update(dict(refusal.valid_data or {}))
        for name, sentences in refusal.messages_dict.items():
            message = f"`{name}` {' '.join(map(str, sentences))}"
            wrong = schema.fields[name].metadata.get("wrong") if name in given else None
            place = below(path, str(name))
            if wrong is None:
                findings.error(place, message)
                continue
            values[name] = wrong.value
            if wrong.stops:
                findings.stop(place, message, wrong.stops)
            else:
                findings.warn(place, f"{message}; until then {wrong.meanwhile}", strict_error=True)
    return values


def default_of(schema: Schema, name: str) -> Any:
    """Return what a key means when it is not written; None for keys that have to be."""
    field = schema.fields[name]
    return None if field.required else field.load_default
