# SPDX-License-Identifier: MIT
"""Defaults, accepted spellings and refused values of the keys, one per case."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agent.config.model import EventSettings, LogShipping, Mode, Periods
from agent.core.account_names import NameRules
from agent.core.homes import HomeRules
from agent.core.model import AccountingType

from .samples import (
    CPU,
    OFFERING,
    SKIPPED,
    UUID,
    Site,
    errors,
    only_offering,
    root,
    warnings,
    with_offering,
)

ROOT_ATTRIBUTES = [
    ("timezone", SKIPPED, "timezone", ZoneInfo("UTC")),
    ("timezone", "Europe/Tallinn", "timezone", ZoneInfo("Europe/Tallinn")),
    ("timezone", "", "timezone", ZoneInfo("UTC")),
    ("log_level", SKIPPED, "log_level", "INFO"),
    ("log_level", "debug", "log_level", "DEBUG"),
    ("reporting_periods", SKIPPED, "reporting_periods", 2),
    ("reporting_periods", "12", "reporting_periods", 12),
    ("reporting_periods", 3.0, "reporting_periods", 3),
    ("api_key_final_report_days", SKIPPED, "api_key_final_report_days", 3),
    ("api_key_final_report_days", "0", "api_key_final_report_days", 0),
    ("expose_backend_error_details", SKIPPED, "expose_backend_error_details", True),
    ("expose_backend_error_details", "no", "expose_backend_error_details", False),
    ("elastic_apm_server_url", "", "elastic_apm_server_url", ""),
    ("sentry_dsn", "", "sentry_dsn", None),
    ("sentry_dsn", None, "sentry_dsn", None),
    ("log_shipping", SKIPPED, "log_shipping", LogShipping()),
    ("log_shipping", None, "log_shipping", LogShipping()),
    (
        "log_shipping",
        {"enabled": True, "ship_interval_seconds": 10, "buffer_size_mb": 2, "log_level": "error"},
        "log_shipping",
        LogShipping(enabled=True, interval_seconds=10, buffer_mb=2, log_level="ERROR"),
    ),
    ("state_dir", "/srv/state", "state_dir", Path("/srv/state")),
    ("strict", "yes", "strict", True),
    ("offerings", [], "offerings", ()),
    ("name", SKIPPED, "periods", Periods()),
]


@pytest.mark.parametrize(("key", "written", "attribute", "meant"), ROOT_ATTRIBUTES)
def test_root_key(site: Site, key: str, written: object, attribute: str, meant: object) -> None:
    loaded = site.load(root(**({} if written is SKIPPED else {key: written})))
    assert not errors(loaded)
    assert getattr(loaded.settings, attribute) == meant


OFFERING_ATTRIBUTES = [
    ("name", "", "name", UUID),
    ("waldur_offering_uuid", "E21A0F00-30B4-47DE-B63B-EDF69DB6742E", "uuid", UUID),
    ("backend_type", "SLURM", "backend_type", "slurm"),
    ("backend_settings", None, "backend_settings", {}),
    ("backend_components", None, "components", {}),
    ("order_processing_backend", None, "backends", {}),
    ("reporting_backend", "moab", "backends", {Mode.ORDER_PROCESS: "slurm", Mode.REPORT: "moab"}),
    ("username_management_backend", SKIPPED, "username_backend", "base"),
    ("username_management_backend", "ldap", "username_backend", "ldap"),
    ("resource_import_enabled", "on", "resource_import_enabled", True),
    ("username_reconciliation_enabled", 1, "username_reconciliation_enabled", True),
    ("queue", SKIPPED, "queue", "default"),
    ("queue", "head-1.site_A", "queue", "head-1.site_A"),
    ("queue", 7, "queue", "7"),
    ("backend_settings.cluster_name", "alpha", "queue", "alpha"),
    ("backend_settings.cluster_name", 2024, "queue", "2024"),
    ("backend_settings.soft_delete", True, "soft_delete", True),
    ("backend_settings.periodic_limits", {"enabled": True}, "periodic_limits_enabled", True),
    ("backend_settings.command_prefix", SKIPPED, "command_prefix", ()),
    (
        "backend_settings.command_prefix",
        ["docker", "exec", "a b"],
        "command_prefix",
        ("docker", "exec", "a b"),
    ),
    ("backend_settings.command_prefix", "docker exec 'a b'", "command_prefix", ("docker", "exec", "a b")),
    ("backend_settings.command_prefix", "ssh -E '' head", "command_prefix", ("ssh", "-E", "", "head")),
    (
        "backend_settings.qos_paused",
        "stop",
        "backend_settings",
        {"customer_prefix": "c_", "qos_paused": "stop"},
    ),
    (
        "backend_settings",
        {
            "allocation_prefix": "a_",
            "project_prefix": "p_",
            "allocation_name_max_len": "34",
            "check_backend_id_uniqueness": True,
            "check_all_offerings": True,
            "backend_id_max_retries": 5,
        },
        "names",
        NameRules(
            "", "p_", "a_", max_length=34, check_uniqueness=True, check_all_offerings=True, max_attempts=5
        ),
    ),
    ("backend_settings.allocation_name_max_len", 0, "names", NameRules(customer_prefix="c_")),
    ("backend_settings.backend_id_max_retries", 0, "names", NameRules(customer_prefix="c_", max_attempts=1)),
    ("backend_settings.default_homedir_umask", SKIPPED, "homes", HomeRules()),
    ("backend_settings.default_homedir_umask", "027", "homes", HomeRules(umask="0027")),
    ("backend_settings.default_homedir_umask", 0o027, "homes", HomeRules(umask="0027")),
    ("backend_settings.homedir_umask", "0027", "homes", HomeRules(umask="0027")),
    ("backend_settings.homedir_umask", "0700", "homes", HomeRules(umask="0077")),
    ("backend_settings.homedir_umask", "0750", "homes", HomeRules(umask="0027")),
    (
        "backend_settings",
        {"default_homedir_umask": "0022", "homedir_umask": "0700", "homedir_base_path": "/srv/home"},
        "homes",
        HomeRules(umask="0022", base_path="/srv/home"),
    ),
    ("backend_settings.enable_user_homedir_account_creation", False, "homes", HomeRules(create=False)),
]


@pytest.mark.parametrize(("path", "written", "attribute", "meant"), OFFERING_ATTRIBUTES)
def test_offering_key(site: Site, path: str, written: object, attribute: str, meant: object) -> None:
    assert getattr(only_offering(site.load(with_offering(path, written))), attribute) == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("https://waldur.example.com/api", "https://waldur.example.com/api/"),
        ("HTTP://waldur.example.com/api/", "HTTP://waldur.example.com/api/"),
        ("http://[::1]:8081/api", "http://[::1]:8081/api/"),
    ],
)
def test_api_url_ends_in_a_slash(site: Site, written: str, meant: str) -> None:
    assert only_offering(site.load(with_offering("waldur_api_url", written))).access.url == meant


EVENTS = [
    ({}, EventSettings(ws_host="waldur.example.com")),
    ({"stomp_enabled": True}, {"stomp_enabled": True, "membership_by_events": True}),
    (
        {"stomp_enabled": True, "stomp_membership_sync_enabled": False},
        {"stomp_enabled": True, "membership_by_events": False},
    ),
    ({"stomp_membership_sync_enabled": True}, {"membership_by_events": False}),
    ({"verify_ssl": False}, {"ws_port": 443, "use_tls": True}),
    ({"websocket_use_tls": False}, {"ws_port": 80, "use_tls": False}),
    ({"websocket_use_tls": False, "mqtt_enabled": True}, {"ws_port": 443}),
    ({"mqtt_enabled": True}, {"mqtt_enabled": True, "membership_by_events": True, "ws_path": "/rmqws"}),
    (
        {"mqtt_enabled": True, "stomp_enabled": True},
        {"mqtt_enabled": False, "stomp_enabled": True, "ws_path": "/rmqws-stomp"},
    ),
    ({"stomp_enabled": True, "event_transport": "tcp"}, {"ws_path": "", "ws_port": 61614}),
    (
        {"mqtt_enabled": True, "event_transport": "tcp", "websocket_use_tls": False, "stomp_ws_path": "x"},
        {"ws_path": "", "ws_port": 1883},
    ),
    (
        {"stomp_ws_host": "mq", "stomp_ws_port": "15674", "stomp_ws_path": "ws", "websocket_use_tls": False},
        {"ws_host": "mq", "ws_port": 15674, "ws_path": "/ws", "use_tls": False},
    ),
]


@pytest.mark.parametrize(("keys", "meant"), EVENTS)
def test_events(site: Site, keys: dict[str, Any], meant: EventSettings | dict[str, Any]) -> None:
    events = only_offering(site.load(root(offerings=[{**OFFERING, **keys}]))).events
    if isinstance(meant, EventSettings):
        assert events == meant
    else:
        assert {name: getattr(events, name) for name in meant} == meant


def test_component(site: Site) -> None:
    body = {
        **CPU,
        "accounting_type": "limit",
        "unit_factor": "2.5",
        "unit_factor_reporting": 3,
        "limit": 10,
        "target_components": {"gres/gpu": {"factor": 5}, "node": None},
        "description": "Cores",
        "min_value": 1.0,
        "is_prepaid": False,
        "limit_period": None,
    }
    component = only_offering(site.load(with_offering("backend_components", {"gres/gpu": body}))).components[
        "gres/gpu"
    ]
    assert component.accounting_type is AccountingType.LIMIT
    assert (component.unit_factor, component.unit_factor_reporting, component.limit) == (2.5, 3.0, 10.0)
    assert component.targets == {"gres/gpu": 5.0, "node": 1.0}
    assert component.waldur_fields == {"description": "Cores", "min_value": 1, "is_prepaid": False}


def test_component_defaults(site: Site) -> None:
    body = {"measured_unit": "Hours", "accounting_type": "one", "label": "GPU"}
    component = only_offering(site.load(with_offering("backend_components", {"gpu": body}))).components["gpu"]
    assert (component.unit_factor, component.unit_factor_reporting, component.limit) == (1.0, None, None)
    assert component.targets == {} and component.waldur_fields == {}


REFUSED_AT_ROOT = [
    ("timezone", "Mars/Base", "unknown timezone"),
    ("timezone", "../etc/passwd", "unknown timezone"),
    ("log_level", "LOUD", "is 'LOUD'; use one of DEBUG, INFO, WARNING, ERROR, CRITICAL"),
    ("reporting_periods", 0, "is 0; use a whole number from 1 to 12"),
    ("reporting_periods", 13, "is 13; use a whole number from 1 to 12"),
    ("reporting_periods", 2.5, "is 2.5; use a whole number from 1 to 12"),
    ("reporting_periods", True, "is True; use a whole number from 1 to 12"),
    ("api_key_final_report_days", 29, "is 29; use a whole number from 0 to 28"),
    ("expose_backend_error_details", "maybe", "is 'maybe'; use true or false"),
    ("elastic_apm_server_url", "apm.example.com", "must start with http:// or https://"),
    ("sentry_dsn", "not a url", "is ***; it must start with http:// or https://"),
    ("broker_url", "localhost", "is ***; write something like redis://"),
    (
        "broker_url",
        "sqs://:s3cret@host",
        "is ***; the agent knows redis://, rediss://, redis+socket://, sentinel://, amqp",
    ),
    (
        "broker_url",
        "amqp://127.0.0.1:x//",
        "is ***; this is not the URL of a broker: a port is a number up to 65535, a database of Redis is a number",
    ),
    *(
        ("broker_url", url, "is ***; this is not the URL of a broker")
        for url in (
            "sentinel://a:1;sentinel://:s3#cret@b:2/0",
            "redis://:1/s3cret@127.0.0.1:1/0",
            "redis://:12?s3cret=x@127.0.0.1/0",
            "redis+socket://:12/s3cret@/run/redis.sock",
            "amqp://user:12#s3cret@127.0.0.1//",
            "amqp://user:12/s3cret@127.0.0.1//",
            "amqp://user:a@b/s3cret@127.0.0.1//",
            "redis://127.0.0.1/first",
            "redis://[::1/0",
        )
    ),
    ("log_shipping", "on", "is 'on'; a map of keys is needed"),
    ("log_shipping", ["secret"], "is a list; a map of keys is needed"),
    ("offerings", {"name": "x"}, "`offerings` is a map; a list is needed"),
    ("offerings", SKIPPED, "`offerings` is missing"),
    ("offerings", None, "`offerings` is missing"),
]


@pytest.mark.parametrize(("key", "written", "sentence"), REFUSED_AT_ROOT)
def test_refused_root_key(site: Site, key: str, written: object, sentence: str) -> None:
    tree = {name: value for name, value in {**root(), key: written}.items() if value is not SKIPPED}
    loaded = site.load(tree)
    assert loaded.settings is None
    assert sentence in errors(loaded)[key]


REFUSED_IN_OFFERING = [
    ("name", SKIPPED, "`name` is missing"),
    ("name", 5, "is 5; text is needed: put it in quotes"),
    ("waldur_api_url", "waldur.example.com", "it must start with http:// or https://"),
    ("waldur_api_url", "https:///api/", "the name of the host is missing"),
    ("waldur_api_url", "https://[::1/api/", "this is not a URL"),
    ("waldur_api_token", "", "there is no way to log in: give `waldur_api_token`, or all of oidc_token_url"),
    ("waldur_api_token", 12345, "is ***; text is needed: put it in quotes"),
    ("backend_type", SKIPPED, "`backend_type` is missing"),
    ("verify_ssl", "perhaps", "use true or false"),
    ("backend_settings", "x", "a map of keys is needed"),
    ("backend_components", [], "is a list; a map of keys is needed"),
    ("backend_components.cpu", 5, "it is 5; a map of keys is needed"),
    ("backend_components.cpu.label", SKIPPED, "`label` is missing"),
    ("backend_components.cpu.accounting_type", "limits", "is 'limits'; use one of usage, limit, one"),
    ("backend_components.cpu.accounting_type", "fixed", "use one of usage, limit, one"),
    ("backend_components.cpu.min_value", 1.5, "use a whole number"),
]


@pytest.mark.parametrize(("path", "written", "sentence"), REFUSED_IN_OFFERING)
def test_refused_offering_key(site: Site, path: str, written: object, sentence: str) -> None:
    loaded = site.load(with_offering(path, written))
    assert loaded.settings is None
    assert sentence in errors(loaded)[f"offerings[0].{path}"]


def test_all_errors_come_at_once(site: Site) -> None:
    first = {**OFFERING, "waldur_api_url": "nowhere", "waldur_api_token": ""}
    second = {**OFFERING, "backend_components": {"cpu": {"accounting_type": "limits"}}}
    loaded = site.load(
        {"timezone": "Mars", "offerings": [first, "x", second], "log_shipping": {"buffer_size_mb": 0}}
    )
    assert list(errors(loaded)) == [
        "timezone",
        "log_shipping.buffer_size_mb",
        "offerings[0].waldur_api_url",
        "offerings[0].waldur_api_token",
        "offerings[1]",
        "offerings[2].backend_components.cpu.measured_unit",
        "offerings[2].backend_components.cpu.accounting_type",
        "offerings[2].backend_components.cpu.label",
    ]


@pytest.mark.parametrize("key", ["stomp_enabled", "mqtt_enabled"])
def test_events_need_a_token_and_are_refused_without_one(site: Site, key: str) -> None:
    oidc = {
        "oidc_token_url": "https://sso.example.com/token",
        "oidc_client_id": "agent",
        "oidc_client_secret": "s3cret",
    }
    offering = {**OFFERING, "waldur_api_token": "", **oidc, key: True}
    told = warnings(site.load(root(offerings=[offering])))[f"offerings[0].{key}"]
    assert "knows `waldur_api_token` only" in told and told.endswith(
        "until then orders and members are polled"
    )
    assert f"offerings[0].{key}" in errors(site.load(root(offerings=[offering], strict=True)))
    assert f"offerings[0].{key}" not in warnings(site.load(root(offerings=[{**OFFERING, **oidc, key: True}])))


def test_offerings_can_be_judged_further_whatever_is_wrong(site: Site) -> None:
    loaded = site.load(root(offerings=[{**OFFERING, "waldur_api_token": ""}, dict(OFFERING)], strict=True))
    assert loaded.settings is None and loaded.strict
    assert [offering.path for offering in loaded.offerings] == ["offerings[0]", "offerings[1]"]


WARNED = [
    ("verify_ssl", False, "verify_ssl", "TLS certificates are not checked"),
    ("order_processing_backend", "", "", "nothing is scheduled for it"),
    (
        "stomp_membership_sync_enabled",
        True,
        "stomp_membership_sync_enabled",
        "MISCONFIGURATION for offering One",
    ),
    ("oidc_client_id", "me", "oidc_token_url", "the static token is used"),
    ("backend_settings.homedir_umask", "0700", "backend_settings.homedir_umask", "read as a mode"),
    (
        "backend_settings.default_homedir_umask",
        "0700",
        "backend_settings.default_homedir_umask",
        "read as a mode",
    ),
    (
        "backend_components.cpu.limit_period",
        "week",
        "backend_components.cpu.limit_period",
        "use one of annual",
    ),
    ("backend_components.cpu.measured_unit", "u" * 31, "backend_components.cpu.measured_unit", "at most 30"),
    ("backend_components", {"c p u": CPU}, "backend_components.c p u", "Waldur takes component names"),
]


@pytest.mark.parametrize(("path", "written", "place", "sentence"), WARNED)
def test_warned_of(site: Site, path: str, written: object, place: str, sentence: str) -> None:
    loaded = site.load(with_offering(path, written), strict=True)
    assert loaded.settings is not None
    assert sentence in warnings(loaded)[f"offerings[0].{place}".rstrip(".")]


def test_wrong_level_of_shipped_log_is_only_warned_of(site: Site) -> None:
    loaded = site.load(root(log_shipping={"log_level": "LOUD"}))
    assert loaded.settings is not None
    assert loaded.settings.log_shipping.log_level == "WARNING"
    assert "log_shipping.log_level" in warnings(loaded)


def test_proxy_reaches_every_offering(site: Site) -> None:
    access = only_offering(site.load(root(global_proxy="socks5://user:pw@proxy:1080"))).access
    assert access.proxy == "socks5://user:pw@proxy:1080"
    assert "pw" not in repr(access).replace("proxy", "")
