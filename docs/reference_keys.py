# SPDX-License-Identifier: MIT
"""What becomes of each key in reference-keys.yaml with each backend, found out by loading it; the page
reference-keys.md shows it.

A key works when the settings that were read differ with it; a test sees that every setting has a reader. It is refused,
or has no effect, when the configuration's check says so. A key of which neither is true is ignored, and fails a test.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agent.config.model import Mode, Offering, Problem, Severity
from agent.config.secret import Secret
from agent.core.errors import ConfigError
from agent.run.service import configuration
from backends import registry
from backends.usernames import registry as usernames

TABLE = Path(__file__).parent / "reference-keys.yaml"
ENVIRONMENT = "environment"
# The words of `agent.config.not_served`, and of a backend that cannot be made as it is configured.
NOT_SERVED = re.compile("is not (served|supported) yet")
ROOT = "the root"
# The maps as they were written: whoever reads them is a schema.
RAW = frozenset({"backend_settings", "path", "source", "extras"})
OFFERING: Mapping[str, Any] = {
    "name": "One",
    "waldur_api_url": "https://waldur.example.com/api/",
    "waldur_api_token": "t0ken-of-one",
    "waldur_offering_uuid": "e21a0f0030b447deb63bedf69db6742e",
    "backend_type": "slurm",
    "order_processing_backend": "slurm",
    "membership_sync_backend": "slurm",
    "reporting_backend": "slurm",
    "preserve_unmanaged_backend_users": False,
    "backend_settings": {"customer_prefix": "c_"},
    "backend_components": {
        "cpu": {
            "measured_unit": "k-Hours",
            "accounting_type": "usage",
            "label": "CPU",
            "unit_factor": 60000,
        }
    },
}


SLURM, SLURMRESTD, MOAB = "SLURM", "slurmrestd", "MOAB"
# The offering that each key is written into.
OFFERINGS: Mapping[str, Mapping[str, Any]] = {
    SLURM: OFFERING,
    SLURMRESTD: {
        **OFFERING,
        "backend_settings": {
            "customer_prefix": "c_",
            "cluster_name": "main",
            "execution_mode": "rest",
            "rest_api": {
                "url": "http://slurm.example.com:6820",
                "username": "agent",
                "token_env": "SLURM_JWT",
            },
        },
    },
    MOAB: {
        **OFFERING,
        "backend_type": "moab",
        "order_processing_backend": "moab",
        "membership_sync_backend": "moab",
        "reporting_backend": "moab",
        "backend_settings": {"project_prefix": "q_", "enable_user_homedir_account_creation": True},
        "backend_components": {
            "deposit": {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit"}
        },
    },
}


class Fate(StrEnum):
    WORKS = "works"
    ALIAS = "alias"
    REFUSED = "refused"
    NO_EFFECT = "no effect, and said so"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Row:
    """One key."""

    place: str
    key: str
    since: str
    # By backend.
    fates: Mapping[str, Fate]
    # What it is an alias of, or the sentence of the check, by backend.
    said: Mapping[str, str]


def rows() -> list[Row]:
    """Return all keys of the table with what becomes of each."""
    found = []
    for section in yaml.safe_load(TABLE.read_text(encoding="utf-8")):
        for key, about in section["keys"].items():
            judged = {backend: _judged(backend, section, key, about) for backend in OFFERINGS}
            place = section["place"].removeprefix("offerings[0]").lstrip(".")
            place = place or ("`offerings`" if section["place"] else ROOT)
            fates = {backend: fate for backend, (fate, _) in judged.items()}
            said = {backend: text for backend, (_, text) in judged.items()}
            found.append(Row(place, key, about.get("since", "1.0.7"), fates, said))
    return found


def _judged(backend: str, section: Any, key: str, about: Any) -> tuple[Fate, str]:
    """Return what becomes of a key with a backend. One that the base of that backend has already is written with the
    value that stands under the backend's name.
    """
    own = {**about, **about.get(backend, {})}
    place, above = section["place"], section.get("above", {})
    if backend == MOAB:
        place = place.replace("backend_components.cpu", "backend_components.deposit")
    given = {**section.get("given", {}), **own.get("given", {})}
    before = _effect(backend, place, above, given)
    now = _effect(backend, place, above, {**given, key: own["value"]})
    return _difference(place, key, before, now, own.get("alias", ""))


@dataclass(frozen=True)
class _Effect:
    settings: Mapping[str, str]
    problems: Mapping[str, str]
    stopping: frozenset[str]


def _difference(place: str, key: str, before: _Effect, now: _Effect, alias: str) -> tuple[Fate, str]:
    # Below a map that has no effect as a whole nothing is read.
    for path, text in now.problems.items():
        if "it has no effect" in text and f"{place}.".startswith(f"{path}."):
            return Fate.NO_EFFECT, text
    news = {path: text for path, text in now.problems.items() if before.problems.get(path) != text}
    own = {
        path: text
        for path, text in news.items()
        if (f".{path}".endswith(f".{key}") or f".{key}." in path) and not text.startswith("unknown key")
    }
    refusals = [text for text in own.values() if NOT_SERVED.search(text)]
    if refusals:
        return Fate.REFUSED, refusals[0]
    if idle := [text for text in own.values() if "it has no effect" in text]:
        return Fate.NO_EFFECT, idle[0]
    if before.settings != now.settings or news.keys() & now.stopping:
        return (Fate.ALIAS, f"of `{alias}`") if alias else (Fate.WORKS, "")
    # Below a map that is refused as a whole nothing is read.
    above = [text for text in now.problems.values() if NOT_SERVED.search(text)]
    if own:
        return Fate.NO_EFFECT, next(iter(own.values()))
    return (Fate.REFUSED, above[0]) if above else (Fate.IGNORED, "")


def _effect(backend: str, place: str, above: Mapping[str, Any], keys: Mapping[str, Any]) -> _Effect:
    """Return what a configuration with these keys at the place comes to."""
    return _read(backend, place, json.dumps(above), json.dumps(keys))


@cache
def _read(backend: str, place: str, above_as_json: str, keys_as_json: str) -> _Effect:
    above, keys = json.loads(above_as_json), json.loads(keys_as_json)
    tree: dict[str, Any] = {"offerings": [_merged(OFFERINGS[backend], above)]}
    environ = {}
    if place == ENVIRONMENT:
        environ = keys
    else:
        target = tree
        for part in place.replace("offerings[0]", "offerings").split(".") if place else ():
            target = target["offerings"][0] if part == "offerings" else target.setdefault(part, {})
        target.update(keys)
    with tempfile.TemporaryDirectory() as folder:
        tree = {"state_dir": folder, **tree}
        file = Path(folder) / "site.yaml"
        file.write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
        file.chmod(0o600)
        loaded = configuration.checked(file, environ)
        problems = {p.path: p.message.replace(folder, "...") for p in loaded.problems}
        values = dict(_values(loaded.settings, "")) if loaded.settings else {"": str(problems)}
        for offering in loaded.offerings:
            values |= _of_backends(offering)
        values = {name: value.replace(folder, "...") for name, value in values.items()}
    return _Effect(values, problems, frozenset(p.path for p in loaded.problems if _stops(p)))


def _stops(problem: Problem) -> bool:
    return bool(problem.stopped_modes) or problem.severity is Severity.ERROR


def _of_backends(offering: Offering) -> dict[str, str]:
    values: dict[str, str] = {}
    for mode in Mode:
        try:
            values |= (
                _values(registry.configure(offering, mode).settings, f"{mode}.")
                if offering.backend_of(mode)
                else {}
            )
        except ConfigError:
            continue
    if offering.backend_settings.get("ldap"):
        parsed = usernames.load("ldap").parse(offering.backend_settings, "")
        values |= _values(parsed.settings, "ldap.")
    return values


def _values(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield everything in a tree of settings by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            if field.name not in RAW:
                yield from _values(getattr(value, field.name), f"{name}{field.name}.")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _values(inner, f"{name}{key}.")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _values(inner, f"{name}{number}.")
    else:
        text = value.reveal() if isinstance(value, Secret) else value
        yield name, str(sorted(text)) if isinstance(text, frozenset | set) else str(text)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**below}
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = (
            _merged(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
        )
    return json.loads(json.dumps(merged))  # type: ignore[no-any-return]


def page() -> str:
    """Return the page."""
    found = rows()
    parts = [
        "# Keys of the reference",
        "",
        "Every key of `waldur-site-agent` 1.0.7 and of the candidate of 1.0.8, and what becomes of it here: on SLURM",
        "by its commands, on SLURM by slurmrestd (`execution_mode: rest`), and on MOAB. Made by `make docs`: each key",
        "is loaded as `config-check` does, and a test sees that every setting has a reader.",
        "",
        "- works: as in the reference; alias: the same by another name here",
        "- refused: not served yet; asked for, `config-check` says the sentence and the modes that it is about are off",
        "- no effect, and said so: accepted, with the sentence as a warning",
        "",
    ]
    for backend in OFFERINGS:
        counts = Counter(row.fates[backend] for row in found)
        parts.append(f"- {backend}: {', '.join(f'{fate} {counts[fate]}' for fate in Fate)}")
    place = ""
    for row in found:
        if row.place != place:
            place = row.place
            titles = " | ".join(OFFERINGS)
            parts += [
                "",
                f"## {place}",
                "",
                f"| Key | Since | {titles} | |",
                f"|---|---|{'---|' * len(OFFERINGS)}---|",
            ]
        fates = " | ".join(row.fates[backend] for backend in OFFERINGS)
        parts.append(f"| `{row.key}` | {row.since} | {fates} | {_sentences(row)} |")
    return "\n".join(parts) + "\n"


def _sentences(row: Row) -> str:
    """Return what is said of a key, each sentence once, with the backends that it is about where not all say it."""
    of_text: dict[str, list[str]] = {}
    for backend, text in row.said.items():
        of_text.setdefault(text, []).append(backend)
    shown = [
        text if len(backends) == len(OFFERINGS) else f"{', '.join(backends)}: {text}"
        for text, backends in of_text.items()
        if text
    ]
    return "; ".join(shown).replace("|", "\\|")
