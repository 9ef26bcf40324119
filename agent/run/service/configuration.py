# SPDX-License-Identifier: MIT
"""The whole configuration: what `agent.config` read, judged together with the backends that it names.

A key of `backend_settings` is unknown when no backend of the offering reads it: they may share one map.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from agent.config import legacy_env, load
from agent.config.findings import Findings, has_errors, unknown_keys, with_strict_errors, without_effect
from agent.config.homes import HOME_KEYS, HOMES_KEY
from agent.config.keys import keys_of, secret_keys
from agent.config.model import FINAL_REPORT_DAYS, Mode, Offering, Problem, Settings, Severity
from agent.config.schema import BackendSettingsKeys, ComponentKeys
from agent.config.secret import mask_words, secret_values, without_secrets
from agent.config.sources import NOT_READ, warn_if_open
from agent.core.errors import ConfigError
from agent.observability import apm
from agent.state import mounts, store
from backends import registry
from backends.usernames import registry as usernames

NO_TIMEZONE = (
    "is not written, so months of billing begin in UTC, also where this host has another zone. `UTC` says that this is "
    "meant; else write the zone of Waldur's server"
)
WITHOUT_KEYS = frozenset({"slurm", "moab"})


def checked(
    path: Path | None, environ: Mapping[str, str], *, strict: bool | None = None, with_logins: bool = True
) -> load.LoadResult:
    """Return the settings and all problems of all parts, each once: the backends read keys that the agent has read. No
    settings when one of them is an error.
    """
    loaded = load.load(path, environ, strict=strict, with_logins=with_logins)
    offerings = tuple(
        replace(
            offering,
            secret_settings=_secret_settings(offering),
            periodic_limits_enabled=offering.periodic_limits_enabled
            and "periodic_limits" not in registry.without_effect(offering),
        )
        for offering in loaded.offerings
    )
    settings = replace(loaded.settings, offerings=offerings) if loaded.settings else None
    loaded = replace(loaded, settings=settings, offerings=offerings)
    problems = (
        *of_secrets(load.find_config(path, environ), offerings),
        *of_backends(loaded.offerings, strict=loaded.strict),
        *of_state(loaded.settings),
        *of_keys(loaded.settings),
        *of_packages(loaded.settings, strict=loaded.strict),
    )
    if loaded.from_variables:
        problems = legacy_env.in_variables(problems)
    problems = tuple(dict.fromkeys((*loaded.problems, *problems)))
    settings = None if has_errors(problems) else loaded.settings
    if settings is not None and not with_logins:
        offerings = tuple(map(_without_secrets, settings.offerings))
        return replace(
            loaded, settings=replace(settings, offerings=offerings), offerings=offerings, problems=problems
        )
    return replace(loaded, settings=settings, problems=problems)


def _setting_kinds(offering: Offering) -> tuple[type, ...]:
    """Return the dataclasses of all keys of an offering's `backend_settings`."""
    return (BackendSettingsKeys, *registry.setting_kinds(offering), *usernames.setting_kinds(offering))


def _secret_settings(offering: Offering) -> tuple[str, ...]:
    """Return the names of the keys that are declared as secret, without the maps that they are in."""
    return tuple(sorted({place.rpartition(".")[2] for place in secret_keys(*_setting_kinds(offering))}))


def _without_secrets(offering: Offering) -> Offering:
    """Return the offering without what its backends log in with, for processes that start no backend."""
    return replace(
        offering,
        backend_settings=MappingProxyType(
            without_secrets(offering.backend_settings, NOT_READ, offering.secret_settings)
        ),
        command_prefix=mask_words(offering.command_prefix),
    )


def usable(
    path: Path | None, environ: Mapping[str, str], *, with_logins: bool = True
) -> tuple[Settings, tuple[Problem, ...]]:
    """Return the settings and the warnings about them. Raises ConfigError with every error."""
    loaded = checked(path, environ, with_logins=with_logins)
    if loaded.settings is None:
        raise ConfigError(load.error_text(loaded.problems))
    return loaded.settings, loaded.problems


def advice(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Return keys that are not set and that guard people or their bills, each with a sentence on its safe value."""
    is_reporting = any(offering.backend_of(Mode.REPORT) for offering in settings.offerings)
    zone = () if settings.has_timezone or not is_reporting else (("timezone", NO_TIMEZONE),)
    return zone + tuple(
        (
            f"{offering.path}.preserve_unmanaged_backend_users",
            "is not written, so users whom Waldur does not know, also those added by hand, are removed from the "
            "accounts and their jobs there cancelled. `true` is safe: they stay; `false` says that this is meant",
        )
        for offering in settings.offerings
        if offering.backend_of(Mode.MEMBERSHIP_SYNC) and offering.keeps_unmanaged is None
    )


def of_secrets(file: Path | None, offerings: Iterable[Offering]) -> tuple[Problem, ...]:
    """Return a warning of a file that everybody may read, with what only its backends declare as secret."""
    findings = Findings()
    if file and any(any(secret_values(each.backend_settings, each.secret_settings)) for each in offerings):
        warn_if_open(file, findings)
    return findings.problems


def of_state(settings: Settings | None) -> tuple[Problem, ...]:
    """Return what is wrong with the place where the agent remembers things."""
    network = mounts.network_type(settings.state_dir) if settings else ""
    if settings is None or not network:
        return ()
    return (Problem(Severity.ERROR, "state_dir", store.on_network(settings.state_dir, network)),)


def of_keys(settings: Settings | None) -> Iterator[Problem]:
    """Yield a warning where the usage of single keys of resources is to be reported otherwise than usual."""
    if settings is None or settings.api_key_final_report_days == FINAL_REPORT_DAYS:
        return
    if all(set(offering.backends.values()) <= WITHOUT_KEYS for offering in settings.offerings):
        why = "it has no effect: slurm and moab make no keys of resources, so that none has usage of its own"
        yield Problem(Severity.WARNING, "api_key_final_report_days", why)


def of_packages(settings: Settings | None, *, strict: bool) -> tuple[Problem, ...]:
    """Return which optional package a key needs that is not installed."""
    if settings is None or not settings.elastic_apm_server_url or apm.is_installed():
        return ()
    missing = Problem(Severity.WARNING, "elastic_apm_server_url", apm.MISSING, strict_error=True)
    return with_strict_errors([missing], strict=strict)


def of_backends(offerings: Iterable[Offering], *, strict: bool) -> tuple[Problem, ...]:
    """Problems of every offering's backends; `strict` makes errors of unknown keys and of settings that stop modes."""
    found: list[Problem] = []
    for offering in offerings:
        found += registry.problems(offering)
        found += usernames.problems(offering)
        found += _unknown(offering)
        found += _without_effect(offering)
    return with_strict_errors(found, strict=strict)


def _unknown(offering: Offering) -> Iterable[Problem]:
    """Yield the keys of settings and components that no backend of the offering reads. One that is not installed may
    know any of them: then `strict` makes no errors of them.
    """
    wanted = set(filter(None, offering.backends.values()))
    if offering.plugin_venv:  # whose plugin knows keys of its own
        return
    # A slip in the name of one hides no other slip.
    here = {name for name in wanted if name in registry.installed() or registry.meant(name)}
    if not here:
        return
    known = {key for kind in _setting_kinds(offering) for key in keys_of(kind)}
    path = f"{offering.path}.backend_settings"
    found = unknown_keys(offering.backend_settings, known, path)
    if found and (elsewhere := registry.keys_elsewhere(offering)):
        found = [_of_another(problem, path, elsewhere, wanted) for problem in found]
    known = keys_of(ComponentKeys).keys() | registry.component_keys(offering)
    for name, component in {**offering.components, **offering.draft_components}.items():
        found += unknown_keys(component.extras, known, f"{offering.path}.backend_components.{name}")
    yield from (problem if here == wanted else replace(problem, strict_error=False) for problem in found)


def _of_another(problem: Problem, path: str, elsewhere: Mapping[str, str], wanted: Set[str]) -> Problem:
    """Return the problem of an unknown key, in other words where a backend reads it that the offering does not name."""
    name = elsewhere.get(problem.path.removeprefix(f"{path}."))
    if name is None:
        return problem
    why = f"it has no effect with {', '.join(sorted(wanted))}: only {name} reads it"
    return replace(problem, message=why, strict_error=False)


def _without_effect(offering: Offering) -> Iterable[Problem]:
    """Yield warnings of keys for backends that take names and tokens of another Waldur, where the offering has none."""
    if not offering.backends or not set(offering.backends.values()) <= registry.installed().keys():
        return
    names = ", ".join(sorted(set(offering.backends.values())))
    why = f"it has no effect with {names}: only a backend that leads to another Waldur reads it"
    if offering.username_reconciliation_enabled:
        yield Problem(Severity.WARNING, f"{offering.path}.username_reconciliation_enabled", why)
    path = f"{offering.path}.backend_settings"
    for key, reason in registry.without_effect(offering).items():
        yield from without_effect(offering.backend_settings, (key,), path, reason)
    if HOMES_KEY not in offering.backend_settings and not registry.homes_are_unasked(offering):
        reason = f"{names} makes homes only where `{HOMES_KEY}: true` is written"
        for key in HOME_KEYS:
            yield from without_effect(offering.backend_settings, (key,), path, reason)
    known = {key for kind in registry.setting_kinds(offering) for key in keys_of(kind)}
    for key in ("target_api_url", "target_api_token"):
        if offering.backend_settings.get(key) and key not in known:
            yield Problem(Severity.WARNING, f"{offering.path}.backend_settings.{key}", why)
