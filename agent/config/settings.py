# SPDX-License-Identifier: MIT
"""Make `Settings` of the tree of a configuration: the root's keys, and what the environment says instead."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from agent.config import environment, field_types
from agent.config.environment import Variables
from agent.config.field_types import key_name
from agent.config.findings import Findings, key_path, without_effect
from agent.config.keys import keys_of
from agent.config.model import ConsoleSettings, LogShipping, Mode, Offering, Settings
from agent.config.offering import OfferingDefaults, read_offering
from agent.config.policy import rules_of
from agent.config.reading import read
from agent.config.schema import DEFAULT_BROKER_URL, LOOPBACK_ONLY, STOPS_ALL, RootKeys
from agent.config.secret import Secret, SecretUrl, mask_url, passwords_in, split_urls
from agent.config.sources import Sources, secret_of
from agent.config.unencrypted import BROKER_SCHEMES, leads_away
from agent.core.policy import PolicyRules

# One scheme with and without TLS.
SENTINEL_TLS = re.compile(r"sentinel://[^;]*[?&]ssl_")
UNVERIFIED_TLS = re.compile(r"ssl_cert_reqs=(cert_)?(none|optional)|ssl_check_hostname=false", re.IGNORECASE)
# Keys of the root that only hold what the rest of the file repeats, by YAML's anchors; as in docker-compose files.
ANCHOR_PREFIXES = ("x-", "_")


def read_settings(
    tree: Mapping[Any, Any],
    source: str,
    *,
    variables: Variables,
    sources: Sources,
) -> Settings:
    """Return the settings; of use only when `sources.findings` has no error in the end."""
    tree = {name: value for name, value in tree.items() if not key_name(name).startswith(ANCHOR_PREFIXES)}
    values = read(RootKeys, tree, "", sources.findings)
    policy = rules_of(values.policy, "policy", above=PolicyRules(), findings=sources.findings)
    if not values.log_shipping.enabled:
        why = "`enabled: true` is not written, so logs are not sent to Waldur"
        keys = keys_of(LogShipping).keys() - {"enabled"}
        sources.findings.add(without_effect(tree.get("log_shipping"), keys, "log_shipping", why))
    # The proxy is on the way to Waldur only.
    if values.global_proxy.lower().startswith("https://"):
        sources.findings.warn(
            "global_proxy", "requests go over it; the brokers of events are reached directly"
        )
    proxy = values.global_proxy if sources.with_logins else mask_url(values.global_proxy)
    defaults = OfferingDefaults(variables.verify_ssl, variables.ca_file, proxy, policy)
    sentry_dsn = variables.sentry_dsn or _secret(values, "sentry_dsn", sources)
    from_environment = variables.broker_url or variables.celery_broker_url
    broker_url = from_environment or _secret(values, "broker_url", sources)
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
    is_root = os.geteuid() == 0
    if variables.state_dir:
        state_dir = Path(variables.state_dir).absolute()
    elif values.state_dir:
        state_dir = sources.located(values.state_dir).absolute()
    else:
        state_dir = environment.default_state_dir(variables, sources.environ, is_root=is_root)
    return Settings(
        offerings=_offerings(values.offerings, defaults, sources),
        source=source,
        timezone=values.timezone or ZoneInfo("UTC"),
        has_timezone=values.timezone is not None,
        log_level=variables.log_level or values.log_level,
        log_format=variables.log_format,
        sentry_dsn=Secret(sentry_dsn) if sentry_dsn else None,
        sentry_environment=variables.sentry_environment,
        flower_url=variables.flower_url.rstrip("/"),
        sentry_monitors=values.sentry_monitors,
        heartbeat_path=variables.heartbeat_path,
        elastic_apm_server_url=values.elastic_apm_server_url,
        reporting_periods=values.reporting_periods,
        api_key_final_report_days=values.api_key_final_report_days,
        expose_backend_error_details=values.expose_backend_error_details,
        log_shipping=values.log_shipping,
        console=_console(values.console, sources),
        periods=variables.periods,
        broker_url=SecretUrl(broker_url or DEFAULT_BROKER_URL),
        state_dir=state_dir,
        lock_dir=environment.shared_lock_dir(variables, is_root=is_root),
        strict=values.strict,
    )


def _console(written: ConsoleSettings, sources: Sources) -> ConsoleSettings:
    """Return the settings with the places of their files: only the console reads them."""
    oidc, unsafe = written.oidc, {}
    if written.certificate_key and not written.certificate:
        unsafe["certificate"] = "is missing: without it there is no TLS"
    for name, address in (("issuer", oidc.issuer), ("url", oidc.url)) if oidc else ():
        if leads_away(address, "http"):
            unsafe[f"oidc.{name}"] = "use https://: whoever listens on the way could log in"
    for name, said in unsafe.items():
        sources.findings.refuse(f"console.{name}", said, LOOPBACK_ONLY)
    if unsafe:
        return ConsoleSettings()

    def located(file: str) -> str:
        return str(sources.located(file)) if file else ""

    return replace(
        written,
        certificate=located(written.certificate),
        certificate_key=located(written.certificate_key),
        oidc=oidc and replace(oidc, client_secret_file=located(oidc.client_secret_file)),
    )


def _offerings(entries: Sequence[Any], defaults: OfferingDefaults, sources: Sources) -> tuple[Offering, ...]:
    findings = sources.findings
    if findings.has_error_at("offerings"):
        return ()
    if not entries:
        findings.warn("offerings", "the list is empty: there is nothing to do")
    offerings: list[Offering] = []
    for index, entry in enumerate(entries):
        path = f"offerings[{index}]"
        if not isinstance(entry, Mapping):
            findings.error(path, f"it is {field_types.displayed(entry)}; a map of keys is needed")
            continue
        offering = read_offering(entry, path, defaults=defaults, sources=sources)
        offerings.append(_unlike(offering, offerings, findings))
    _warn_of_unnamed_clusters(offerings, findings)
    return tuple(offerings)


def _unlike(offering: Offering, others: Sequence[Offering], findings: Findings) -> Offering:
    """Return the offering; without its modes where an entry before it is of the same one, which is the one served."""
    twin = next((each for each in others if offering.uuid and each.uuid == offering.uuid), None)
    if twin:
        said, path = (
            f"it is the same offering as {twin.path}",
            key_path(offering.path, "waldur_offering_uuid"),
        )
        findings.refuse(path, said, STOPS_ALL)
        return replace(offering, stopped=MappingProxyType(dict.fromkeys(Mode, f"{path}: {said}")))
    namesake = next((each for each in others if offering.name and each.name == offering.name), None)
    if namesake:
        said = f"{offering.name!r} is the name of {namesake.path} as well: logs and commands name offerings by it"
        findings.warn(key_path(offering.path, "name"), said, strict_error=True)
    return offering


def _warn_of_unnamed_clusters(offerings: Sequence[Offering], findings: Findings) -> None:
    """Warn of offerings without a cluster's name next to others of one kind of backend that have one."""
    modes = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC)
    backends_of = [(each, {each.backend_of(mode) for mode in modes} - {""}) for each in offerings]
    named = [(each, backends) for each, backends in backends_of if each.backend_settings.get("cluster_name")]
    for offering, backends in backends_of:
        other = next((each for each, others in named if others & backends), None)
        if other is not None and not offering.backend_settings.get("cluster_name"):
            findings.warn(
                key_path(offering.path, "backend_settings.cluster_name"),
                f"is missing, and offering {other.name} has one: until the cluster was seen they count as one, if no "
                "offering names another one. Name the cluster in both",
            )


def _secret(values: RootKeys, key: str, sources: Sources) -> str:
    """Return a secret of the root, wherever it is written, as its declaration wants it."""
    found = secret_of(values, key, "", sources=sources) or ""
    return str(getattr(read(RootKeys, {"offerings": [], key: found}, "", sources.findings), key))
