# SPDX-License-Identifier: MIT
"""Make `Settings` of the tree of a configuration: the root's keys, and what the environment says instead."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marshmallow import ValidationError

from agent.config import environment, field_types
from agent.config.environment import Variables
from agent.config.findings import Findings, below, key_name, without_effect
from agent.config.model import LogShipping, Mode, Offering, Settings
from agent.config.offering import OfferingDefaults, read_offering
from agent.config.policy import read_policy
from agent.config.schema import LOG_SHIPPING, ROOT, checked
from agent.config.secret import Secret, SecretUrl, mask_url, passwords_in, split_urls
from agent.config.sources import Sources, secret_of
from agent.config.unencrypted import BROKER_SCHEMES, leads_away
from agent.core.policy import PolicyRules

DEFAULT_BROKER_URL = "redis://127.0.0.1:6379/0"
# One scheme with and without TLS.
SENTINEL_TLS = re.compile(r"sentinel://[^;]*[?&]ssl_")
UNVERIFIED_TLS = re.compile(r"ssl_cert_reqs=(cert_)?(none|optional)|ssl_check_hostname=false", re.IGNORECASE)
# Keys of the root that only hold what the rest of the file repeats, by YAML's anchors; as in docker-compose files.
ANCHOR_PREFIXES = ("x-", "_")
# Other spellings that Python's logging takes.
_LEVEL_ALIASES = {"WARN": "WARNING", "FATAL": "CRITICAL"}


def read_settings(
    tree: Mapping[Any, Any],
    source: str,
    *,
    variables: Variables,
    sources: Sources,
) -> Settings:
    """Return the settings; of use only when `sources.findings` has no error in the end."""
    tree = {name: value for name, value in tree.items() if not key_name(name).startswith(ANCHOR_PREFIXES)}
    values = checked(ROOT, tree, "", findings=sources.findings)
    policy = read_policy(values["policy"], "policy", above=PolicyRules(), findings=sources.findings)
    # The proxy is on the way to Waldur only.
    if values["global_proxy"].lower().startswith("https://"):
        sources.findings.warn(
            "global_proxy", "requests go over it; the brokers of events are reached directly"
        )
    proxy = values["global_proxy"] if sources.with_logins else mask_url(values["global_proxy"])
    defaults = OfferingDefaults(variables.verify_ssl, proxy, policy)
    sentry_dsn = variables.sentry_dsn or _secret(values, "sentry_dsn", field_types.secret_url, sources)
    broker_url = variables.broker_url or _secret(values, "broker_url", field_types.broker_url, sources)
    if UNVERIFIED_TLS.search(broker_url):
        sources.findings.warn(
            "broker_url",
            "TLS does not verify the broker: whoever answers there gets the password. Remove ssl_cert_reqs and "
            "ssl_check_hostname; ssl_ca_certs=FILE names an authority of your own",
        )
    if not SENTINEL_TLS.match(broker_url) and any(
        passwords_in(url) and leads_away(url, *BROKER_SCHEMES) for url in split_urls(broker_url)
    ):
        sources.findings.warn(
            "broker_url",
            "without TLS the password goes unencrypted: whoever listens on the way can send tasks. Use rediss:// (or "
            "amqps://, or ssl_cert_reqs=required behind sentinel://), or a network of their own for broker and agents",
        )
    # A lock file lives there, so a command in a shell has to find the same folder as the service does: systemd's own
    # variable, which only services see, comes last.
    if variables.state_dir:
        state_dir = Path(variables.state_dir).absolute()
    elif values["state_dir"]:
        state_dir = sources.located(values["state_dir"]).absolute()
    else:
        state_dir = environment.default_state_dir(sources.environ, is_root=os.geteuid() == 0)
    return Settings(
        offerings=_offerings(values["offerings"], defaults, sources),
        source=source,
        timezone=values["timezone"],
        log_level=variables.log_level or values["log_level"],
        log_format=variables.log_format,
        sentry_dsn=Secret(sentry_dsn) if sentry_dsn else None,
        sentry_environment=variables.sentry_environment,
        sentry_monitors=values["sentry_monitors"],
        heartbeat_path=variables.heartbeat_path,
        elastic_apm_server_url=values["elastic_apm_server_url"],
        reporting_periods=values["reporting_periods"],
        api_key_final_report_days=values["api_key_final_report_days"],
        expose_backend_error_details=values["expose_backend_error_details"],
        log_shipping=_log_shipping(values["log_shipping"], sources),
        periods=variables.periods,
        broker_url=SecretUrl(broker_url or DEFAULT_BROKER_URL),
        state_dir=state_dir,
        strict=values["strict"],
    )


def _offerings(entries: Any, defaults: OfferingDefaults, sources: Sources) -> tuple[Offering, ...]:
    findings = sources.findings
    if entries is None:
        return ()
    if not isinstance(entries, list):
        findings.error(
            "offerings", f"it is {field_types.shown(entries)}; a list is needed, with a dash for each"
        )
        return ()
    if not entries:
        findings.warn("offerings", "the list is empty: there is nothing to do")
    offerings: list[Offering] = []
    for index, entry in enumerate(entries):
        path = f"offerings[{index}]"
        if not isinstance(entry, Mapping):
            findings.error(path, f"it is {field_types.shown(entry)}; a map of keys is needed")
            continue
        offering = read_offering(entry, path, defaults=defaults, sources=sources)
        twin = next((other for other in offerings if offering.uuid and other.uuid == offering.uuid), None)
        if twin:
            findings.warn(below(path, "waldur_offering_uuid"), f"it is the same offering as {twin.path}")
        offerings.append(offering)
    _tell_of_unnamed_clusters(offerings, findings)
    return tuple(offerings)


def _tell_of_unnamed_clusters(offerings: Sequence[Offering], findings: Findings) -> None:
    """Warn of offerings without a cluster's name beside others of one kind of backend that have one."""
    modes = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC)
    kinds = [(each, {each.backend_of(mode) for mode in modes} - {""}) for each in offerings]
    named = [(each, kind) for each, kind in kinds if each.backend_settings.get("cluster_name")]
    for offering, kind in kinds:
        other = next((each for each, others in named if others & kind), None)
        if other is not None and not offering.backend_settings.get("cluster_name"):
            findings.warn(
                below(offering.path, "backend_settings.cluster_name"),
                f"is missing, and offering {other.name} has one: until the cluster was seen they count as one, if no "
                "offering names another one. Name the cluster in both",
            )


def _secret(values: Mapping[str, Any], key: str, kind: Callable[[Any], str], sources: Sources) -> str:
    found = secret_of(values, key, "", sources=sources) or ""
    try:
        return kind(found)
    except ValidationError as refusal:
        sources.findings.error(key, f"`{key}` {' '.join(str(sentence) for sentence in refusal.messages)}")
        return ""


def _log_shipping(section: Mapping[Any, Any], sources: Sources) -> LogShipping:
    values = checked(LOG_SHIPPING, section, "log_shipping", findings=sources.findings)
    written = values["log_level"].upper()
    level = _LEVEL_ALIASES.get(written, written)
    if level not in field_types.LOG_LEVELS:
        sources.findings.warn(
            "log_shipping.log_level",
            f"{field_types.shown(values['log_level'])} is none of {', '.join(field_types.LOG_LEVELS)}; WARNING is used",
        )
        level = "WARNING"
    if not values["enabled"]:
        why = "`enabled: true` is not written, so logs are not sent to Waldur"
        keys = LOG_SHIPPING.fields.keys() - {"enabled"}
        sources.findings.add(without_effect(section, keys, "log_shipping", why))
    return LogShipping(
        enabled=values["enabled"],
        interval_seconds=values["ship_interval_seconds"],
        buffer_mb=values["buffer_size_mb"],
        log_level=level,
    )
