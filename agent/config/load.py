# SPDX-License-Identifier: MIT
"""Finds the configuration and loads it: `load` for settings and problems, `require` for settings or an error.

Where it looks, in this order: the file given, `WALDUR_SITE_AGENT_CONFIG`, the variables of the oldest
service, `WALDUR_CONFIG_FILE_PATH`, the default places.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.config import legacy_env
from agent.config.environment import CONFIG, read_variables
from agent.config.findings import Findings, has_errors, with_strict_errors
from agent.config.model import Offering, Problem, Settings, Severity
from agent.config.settings import read_settings
from agent.config.sources import Sources, read_yaml
from agent.core.errors import ConfigError

DEFAULT_PLACES = (
    Path("waldur-site-agent-config.yaml"),
    Path("/etc/waldur/waldur-site-agent-config.yaml"),
    # Where the reference's containers have it.
    Path("/etc/waldur-site-agent/config.yaml"),
)
ENVIRONMENT = "the environment"


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was read of a configuration."""

    # None when one of the problems is an error.
    settings: Settings | None
    problems: tuple[Problem, ...]
    # Also without settings, some as drafts: their backends can still be judged, so that all problems come at once.
    offerings: tuple[Offering, ...] = ()
    # How strictly backends are judged.
    strict: bool = False
    # No file, problems go by the names of variables.
    from_variables: bool = False


def find_config(explicit: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file to load, existing or not; None when the environment alone configures, or nothing is there."""
    if explicit is not None:
        return explicit
    if environ.get(CONFIG):
        return Path(environ[CONFIG])
    if legacy_env.configures(environ):
        return None
    if environ.get(legacy_env.CONFIG_FILE):
        return Path(environ[legacy_env.CONFIG_FILE])
    return next((place for place in DEFAULT_PLACES if os.path.exists(place)), None)


def load(
    path: Path | None, environ: Mapping[str, str], *, strict: bool | None = None, with_logins: bool = True
) -> LoadResult:
    """Load settings from `path`, or from where `find_config` points, with all problems.

    `strict` makes errors of unknown keys and of two brokers at once; None leaves that to the key `strict`.
    Without `with_logins` no file or variable with an offering's secret is looked at.
    """
    findings = Findings()
    variables = read_variables(environ, findings)
    file = find_config(path, environ)
    tree = _tree(file, environ, findings)
    settings = None
    if tree is not None:
        sources = Sources(environ, file.parent if file else Path(), findings, with_logins)
        source = str(file) if file else ENVIRONMENT
        settings = read_settings(tree, source, variables=variables, sources=sources)
        settings = replace(settings, strict=settings.strict if strict is None else strict)
    is_strict = settings.strict if settings else bool(strict)
    problems = with_strict_errors(legacy_env.without_echo(findings.problems), strict=is_strict)
    if file is None:
        problems = legacy_env.in_variables(problems)
    offerings = settings.offerings if settings else ()
    return LoadResult(
        None if has_errors(problems) else settings,
        problems,
        offerings,
        is_strict,
        from_variables=file is None,
    )


def require(path: Path | None, environ: Mapping[str, str], *, with_logins: bool = True) -> Settings:
    """Return the settings. Raises ConfigError with every error in it when they cannot be used."""
    loaded = load(path, environ, with_logins=with_logins)
    if loaded.settings is None:
        raise ConfigError(error_text(loaded.problems))
    return loaded.settings


def error_text(problems: tuple[Problem, ...]) -> str:
    """Return all errors, one per line, under the sentence that the reference prints too."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    lines = (f"  {': '.join(filter(None, (problem.path, problem.message)))}" for problem in errors)
    return "\n".join(["Configuration validation failed: nothing was started", *lines])


def _tree(file: Path | None, environ: Mapping[str, str], findings: Findings) -> Mapping[Any, Any] | None:
    if file is None:
        if legacy_env.configures(environ):
            return legacy_env.tree_of(environ, findings)
        places = " or ".join(map(str, DEFAULT_PLACES))
        findings.error("", f"there is no configuration file at {places}; {_ways(environ)}")
        return None
    if not os.path.exists(file):
        findings.error("", f"the configuration file {file} does not exist; {_ways(environ)}")
        return None
    tree = read_yaml(file, findings)
    if tree is not None and str(file) == environ.get(legacy_env.CONFIG_FILE):
        return legacy_env.completed(tree, environ, findings)
    return tree


def _ways(environ: Mapping[str, str]) -> str:
    lacking = [name for name in legacy_env.API_VARIABLES if not environ.get(name)]
    hint = ""
    if 0 < len(lacking) < len(legacy_env.API_VARIABLES):
        hint = f" (of these {', '.join(lacking)} is not set)"
    return (
        f"name one with -c or {CONFIG}, "
        f"or configure one offering by {', '.join(legacy_env.API_VARIABLES)} alone{hint}"
    )
