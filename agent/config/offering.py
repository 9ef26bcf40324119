# SPDX-License-Identifier: MIT
"""Read one entry of `offerings`: the rules between its keys, and the frozen value made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from agent.config.backend_settings import read_backend_settings
from agent.config.components import read_components
from agent.config.field_types import QUEUE_NAME, displayed, key_name
from agent.config.findings import Findings, key_path, without_effect
from agent.config.homes import read_homes
from agent.config.keys import WrongValue, keys_of
from agent.config.model import (
    EventSettings,
    Mode,
    Offering,
    OidcClient,
    WaldurAccess,
)
from agent.config.policy import of_offering, rules_of
from agent.config.project_directories import read_project_directories
from agent.config.reading import read
from agent.config.schema import (
    EVENT_TRANSPORTS,
    MQTT_PATH,
    STOMP_PATH,
    STOPS_ALL,
    STOPS_REPORTS,
    BackendSettingsKeys,
    OfferingKeys,
    PeriodicLimitsKeys,
)
from agent.config.secret import Secret
from agent.config.sources import Sources, secret_of
from agent.config.unencrypted import crosses_network, leads_away
from agent.core.components import UsageSource
from agent.core.policy import PolicyRules

BACKEND_KEYS = {
    Mode.ORDER_PROCESS: "order_processing_backend",
    Mode.MEMBERSHIP_SYNC: "membership_sync_backend",
    Mode.REPORT: "reporting_backend",
}
OIDC_KEYS = ("oidc_token_url", "oidc_client_id", "oidc_client_secret")
DEFAULT_QUEUE = "default"
# Files of 2024 have none of these: they are of SLURM, the only kind of backend that there was.
ROLE_KEYS = (*BACKEND_KEYS.values(), "username_management_backend")
ONLY_KIND_OF_2024 = "slurm"
SERVES_ALL = (
    f"it serves all modes, as in files of 2024: none of {', '.join(ROLE_KEYS)} is written. Write an empty "
    "one to serve nothing"
)
NOTHING_SCHEDULED = f"nothing is scheduled for it: none of {', '.join(BACKEND_KEYS.values())} is set"
TCP = EVENT_TRANSPORTS[1]
# The usual ports, by MQTT or STOMP, and with TLS or not.
POLLED = WrongValue(fallback="orders and members are polled")
TCP_PORTS = {(True, True): 8883, (True, False): 1883, (False, True): 61614, (False, False): 61613}


@dataclass(frozen=True, slots=True)
class OfferingDefaults:
    """What offerings take over from the root of the file and from the environment."""

    verify_ssl: bool = True
    ca_file: str = ""
    proxy: str = ""
    policy: PolicyRules = field(default_factory=PolicyRules)


def read_offering(
    section: Mapping[Any, Any], path: str, *, defaults: OfferingDefaults, sources: Sources
) -> Offering:
    """Return the offering. With errors noted under `path` it is a draft, which only its backends should look at."""
    findings = sources.findings
    noted_before = len(findings.problems)
    values = read(OfferingKeys, section, path, findings)
    settings_path = key_path(path, "backend_settings")
    common = read_backend_settings(values.backend_settings, settings_path, findings)
    periodic = common.periodic_limits or PeriodicLimitsKeys()
    homes = read_homes(common, values.backend_settings, settings_path, findings)
    directories = read_project_directories(
        common.project_directory, values.backend_settings, settings_path, findings
    )
    components, drafts = read_components(
        values.backend_components, key_path(path, "backend_components"), findings
    )
    if values.verify_ssl is None:
        values = replace(values, verify_ssl=defaults.verify_ssl)
    access = _access(values, path, defaults=defaults, sources=sources)
    events = _events(values, path, findings)
    _note_unencrypted(access, events, path, findings)
    if access.oidc and access.oidc.token_url and (events.stomp_enabled or events.mqtt_enabled):
        findings.refuse(
            key_path(path, "stomp_enabled" if events.stomp_enabled else "mqtt_enabled"),
            "the events' broker knows `waldur_api_token` only, and this offering logs in by OIDC",
            POLLED,
        )
    _note_without_effect(values, access, path, findings)
    queue = _queue(values, common, path, findings)
    policy = rules_of(values.policy, key_path(path, "policy"), above=defaults.policy, findings=findings)
    backends = _backends(values, section, path, findings)
    plugin_venv = _plugin_venv(values, backends, path, findings)
    usage_source = _usage_source(values.usage_source, common.usage_tres_source, settings_path, findings)
    written_uuid = section.get("waldur_offering_uuid")
    uuid = values.waldur_offering_uuid or (written_uuid.strip() if isinstance(written_uuid, str) else "")
    reasons: dict[Mode, list[str]] = {}
    for problem in findings.problems[noted_before:]:
        for mode in problem.stopped_modes:
            reasons.setdefault(mode, []).append(f"{problem.path}: {problem.message}")
    return Offering(
        name=values.name or uuid,
        uuid=uuid,
        access=access,
        backend_type=values.backend_type.lower(),
        backends=MappingProxyType(backends),
        backend_settings=MappingProxyType(
            {key_name(name): value for name, value in values.backend_settings.items()}
        ),
        components=components,
        draft_components=drafts,
        queue=queue,
        names=common.names,
        soft_delete=common.soft_delete,
        username_backend=values.username_management_backend or "base",
        events=events,
        resource_import_enabled=values.resource_import_enabled,
        username_reconciliation_enabled=values.username_reconciliation_enabled,
        path=path,
        homes=homes,
        project_directories=directories,
        periodic_limits_enabled=periodic.enabled,
        periodic_limit_type=periodic.limit_type,
        periodic_emulator=periodic.emulator_mode,
        command_prefix=common.command_prefix,
        policy=of_offering(policy, values.backend_settings, common.names),
        limits_source=values.limits_source,
        usage_source=usage_source,
        omits_lower_usage=values.omit_anomalous_usage_components,
        order_hook=values.order_hook,
        staff_token_file=sources.located(values.staff_token_file) if values.staff_token_file else None,
        plugin_venv=plugin_venv,
        keeps_unmanaged=values.preserve_unmanaged_backend_users,
        stopped=MappingProxyType({mode: "; ".join(several) for mode, several in reasons.items()}),
    )


def _backends(
    values: OfferingKeys, section: Mapping[Any, Any], path: str, findings: Findings
) -> dict[Mode, str]:
    """Return the backend of each mode that has one. An offering that writes any of the keys has a backend for no other
    mode; one that writes none is of 2024 where its kind is SLURM, and else runs nothing, as in the reference.
    """
    kind = values.backend_type.lower()
    is_bare = not any(name in section for name in ROLE_KEYS)
    if is_bare and kind == ONLY_KIND_OF_2024:
        findings.warn(key_path(path, "backend_type"), SERVES_ALL)
        return dict.fromkeys(BACKEND_KEYS, kind)
    backends = {mode: name for mode, key in BACKEND_KEYS.items() if (name := getattr(values, key))}
    if is_bare and kind:
        keys = ", ".join(f"`{key}: {kind}`" for key in BACKEND_KEYS.values())
        findings.warn(path, f"{NOTHING_SCHEDULED}. Write those of {keys} that shall run")
    elif not backends:
        findings.warn(path, NOTHING_SCHEDULED)
    return backends


def _plugin_venv(
    values: OfferingKeys, backends: Mapping[Mode, str], path: str, findings: Findings
) -> Path | None:
    """Return the environment of the backend for reports. One name is not both its backend and one of ours."""
    if not values.plugin_venv:
        return None
    if not values.reporting_backend:
        why = "it is the environment of `reporting_backend`, which is not written"
        findings.add(without_effect({"plugin_venv": values.plugin_venv}, ["plugin_venv"], path, why))
        return None
    for mode in (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC):
        if backends.get(mode) == values.reporting_backend:
            findings.refuse(
                key_path(path, BACKEND_KEYS[mode]),
                f"{displayed(backends[mode])} is the plugin of waldur-site-agent in `plugin_venv`, which serves "
                "`reporting_backend` only, and neither orders nor members; name a backend of this agent (slurm, moab)",
                WrongValue(frozenset({mode})),
            )
    return Path(values.plugin_venv)


def _usage_source(
    written: UsageSource | None, alias: UsageSource | None, settings_path: str, findings: Findings
) -> UsageSource:
    """Return what is charged for, by our key or the reference's `usage_tres_source`."""
    source = written or alias or UsageSource.REQUESTED
    if alias and alias != source:
        findings.refuse(
            key_path(settings_path, "usage_tres_source"),
            f"`usage_tres_source` is {alias}, and `usage_source` of the offering {source}; they mean the same",
            STOPS_REPORTS,
        )
    return source


def _access(values: OfferingKeys, path: str, *, defaults: OfferingDefaults, sources: Sources) -> WaldurAccess:
    """Return the way to Waldur. A static token wins over OIDC, as in the reference; an incomplete OIDC is not used."""
    if not values.verify_ssl:
        sources.findings.warn(
            key_path(path, "verify_ssl"),
            "TLS certificates are not checked: others may read the token",
        )
    token = secret_of(values, "waldur_api_token", path, sources=sources)
    secret = secret_of(values, "oidc_client_secret", path, sources=sources)
    url, client_id = values.oidc_token_url, values.oidc_client_id
    _note_login((url, client_id, secret), path, sources.findings, has_token=bool(token))
    return WaldurAccess(
        url=values.waldur_api_url,
        token=Secret(token) if token else None,
        oidc=None if token else OidcClient(url or "", client_id or "", Secret(secret or "")),
        verify_ssl=bool(values.verify_ssl),
        ca_file=defaults.ca_file,
        proxy=defaults.proxy,
    )


def _note_login(client: tuple[str | None, ...], path: str, findings: Findings, *, has_token: bool) -> None:
    """Add what is missing to log in with a token, or with the OIDC client (its URL, name and secret)."""
    # What is written and cannot be used has its own problem, and is not missing.
    wrong = {
        key
        for key in ("waldur_api_token", *OIDC_KEYS)
        for end in ("", "_file", "_env")
        if findings.has_error_at(key_path(path, f"{key}{end}"))
    }
    missing = [key for key, value in zip(OIDC_KEYS, client, strict=True) if not value and key not in wrong]
    is_begun = 0 < len(missing) < len(OIDC_KEYS)
    if has_token or "waldur_api_token" in wrong:
        for key in missing if is_begun else ():
            words = "the OIDC client lacks this; the static token is used"
            findings.warn(key_path(path, key), words)
    elif is_begun:
        lacking = " and ".join(f"`{key}`" for key in missing)
        findings.error(key_path(path, missing[0]), f"the OIDC client cannot log in without {lacking}")
    elif missing:
        ways = f"give `waldur_api_token`, or all of {', '.join(OIDC_KEYS)}"
        findings.error(key_path(path, "waldur_api_token"), f"there is no way to log in: {ways}")


def _events(values: OfferingKeys, path: str, findings: Findings) -> EventSettings:
    stomp, mqtt = values.stomp_enabled, values.mqtt_enabled
    if stomp and mqtt:
        findings.warn(
            key_path(path, "mqtt_enabled"),
            "only one of `stomp_enabled` and `mqtt_enabled` can be true; STOMP is used",
            strict_error=True,
        )
        mqtt = False
    wanted = values.stomp_membership_sync_enabled
    if wanted and not (stomp or mqtt):
        findings.warn(
            key_path(path, "stomp_membership_sync_enabled"),
            f"MISCONFIGURATION for offering {values.name}: membership by events needs "
            "`stomp_enabled: true`; members are synced by polling",
        )
    # Behind Waldur's web server; a certificate that is not checked is one all the same. MQTT was on 443 always.
    port = 443 if values.websocket_use_tls or mqtt else 80
    ws_path = values.stomp_ws_path
    if ws_path and not ws_path.startswith("/"):
        ws_path = f"/{ws_path}"
    ws_path = ws_path or (MQTT_PATH if mqtt else STOMP_PATH)
    if values.event_transport == TCP:
        port, ws_path = TCP_PORTS[mqtt, bool(values.websocket_use_tls)], ""
    return EventSettings(
        stomp_enabled=stomp,
        mqtt_enabled=mqtt,
        membership_by_events=(stomp or mqtt) and wanted is not False,
        ws_host=values.stomp_ws_host or urlsplit(values.waldur_api_url).hostname or "",
        ws_port=values.stomp_ws_port or port,
        ws_path=ws_path,
        use_tls=values.websocket_use_tls,
    )


def _note_unencrypted(access: WaldurAccess, events: EventSettings, path: str, findings: Findings) -> None:
    """Warn of secrets that would cross a network without TLS."""
    sent = []
    if leads_away(access.url, "http"):
        sent.append(("waldur_api_url", "http:// sends the token unencrypted"))
    if access.oidc and leads_away(access.oidc.token_url, "http"):
        sent.append(("oidc_token_url", "http:// sends the client's secret unencrypted"))
    if (
        (events.stomp_enabled or events.mqtt_enabled)
        and not events.use_tls
        and crosses_network(events.ws_host)
    ):
        sent.append(("websocket_use_tls", "without TLS the token goes to the events' broker unencrypted"))
    for key, problem in sent:
        findings.warn(
            key_path(path, key), f"{problem}: whoever listens on the way can act as this agent. Use TLS"
        )


def _note_without_effect(values: OfferingKeys, access: WaldurAccess, path: str, findings: Findings) -> None:
    """Warn of keys that are written and not read, because another one says otherwise."""
    usable = {key: getattr(values, key) for key in keys_of(OfferingKeys)}
    if access.token and all(getattr(values, key) for key in OIDC_KEYS):
        why = "`waldur_api_token` comes first; write one way to log in"
        findings.add(without_effect(usable, OIDC_KEYS, path, why))
    if not (values.stomp_enabled or values.mqtt_enabled):
        why = "neither `stomp_enabled` nor `mqtt_enabled` is true, so no events are received"
        keys = {"stomp_ws_host", "stomp_ws_port", "stomp_ws_path"}
        keys |= {"event_transport"} if values.event_transport == TCP else set()
        findings.add(without_effect(usable, keys, path, why))


def _queue(values: OfferingKeys, common: BackendSettingsKeys, path: str, findings: Findings) -> str:
    """Return the queue's name: the cluster's, unless the offering says otherwise."""
    if values.queue or not common.cluster_name:
        return values.queue or DEFAULT_QUEUE
    if not QUEUE_NAME.fullmatch(common.cluster_name):
        findings.refuse(
            key_path(path, "queue"),
            f"`backend_settings.cluster_name` is {displayed(common.cluster_name)}, which cannot name a queue; "
            "give `queue` in letters, digits, dot, dash and underscore",
            STOPS_ALL,
        )
        return DEFAULT_QUEUE
    return common.cluster_name
