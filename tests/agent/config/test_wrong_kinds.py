# SPDX-License-Identifier: MIT
"""Each key that is declared, of the core and of each backend, with each kind of wrong value: the problem has the key's
place, all come at once, and the rest of the file is still checked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from marshmallow import ValidationError, fields

from agent.config.environment import Variables
from agent.config.keys import Declared, Idle, WrongValue, keys_of
from agent.config.model import Periods, Problem, Severity
from agent.config.schema import BackendSettingsKeys, OfferingKeys, RootKeys
from agent.config.secret import is_secret_key
from agent.run.service import configuration
from backends.moab.schema import MoabSettings
from backends.slurm.rest_access import RestAccess
from backends.slurm.schema import SlurmSettings
from backends.usernames.ldap.schema import LdapKeys
from backends.usernames.template import TemplateSettings
from rig.site import DUMPER

from .samples import OFFERING, Site

WRONG: dict[str, Any] = {
    "type": True,
    "empty": "",
    "null": None,
    "list": [{"no such key": [1]}],
    "mapping": {"no such key": 1},
    "negative": -1,
    "huge": 10**30,
    "control": "s3cret\x07",
}
# Whatever the type of a key is, it has no use for these. What it says of the others is asked of it.
ALWAYS = {"type", "list", "mapping", "control"}
SERVED = ("order_processing_backend", "membership_sync_backend", "reporting_backend")
SLURM = {**OFFERING, **dict.fromkeys(SERVED, "slurm")}
DEPOSIT = {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit"}
MOAB = {**OFFERING, **dict.fromkeys(SERVED, "moab"), "backend_components": {"deposit": DEPOSIT}}
REST = {**SLURM, "backend_settings": {"execution_mode": "rest", "cluster_name": "alpha"}}
NAMES_OF_MAPS = {"backend_components": "cpu", "target_components": "gpu", "budgets": "members_removed"}
Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Case:
    """A key at its place in an offering, or at the root; `effect`: what a wrong value there does, as declared."""

    room: str
    offering: Mapping[str, Any] | None
    place: Place
    declared: Declared
    effect: WrongValue | None

    def __str__(self) -> str:
        return f"{self.room}:{path_of(self.place)}"


def cases(
    room: str,
    offering: Mapping[str, Any] | None,
    kind: type,
    place: Place = (),
    effect: WrongValue | None = None,
) -> Iterator[Case]:
    for name, declared in keys_of(kind).items():
        own, here = declared.key.wrong or effect, (*place, name)
        yield Case(room, offering, here, declared, own)
        if declared.inner is not None and declared.key.section is None and name != "offerings":
            below: Place = (0,) if isinstance(declared.field, fields.List) else ()
            below = (NAMES_OF_MAPS[name],) if declared.key.each else below
            yield from cases(room, offering, declared.inner, (*here, *below), own)


SETTINGS = ("backend_settings",)
CASES = [
    *cases("root", None, RootKeys),
    *cases("offering", SLURM, OfferingKeys),
    *cases("slurm", SLURM, SlurmSettings, SETTINGS),
    *cases("slurmrestd", REST, RestAccess, (*SETTINGS, "rest_api")),
    *cases("moab", MOAB, BackendSettingsKeys, SETTINGS),
    *cases("moab", MOAB, MoabSettings, SETTINGS),
    *cases("ldap", {**SLURM, "username_management_backend": "ldap"}, LdapKeys, SETTINGS),
    *cases("groups", SLURM, LdapKeys, SETTINGS),
    *cases("template", {**SLURM, "username_management_backend": "template"}, TemplateSettings, SETTINGS),
]


def path_of(place: Place) -> str:
    words = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in place)
    return "".join(words).lstrip(".")


def put(tree: Any, place: Place, value: Any) -> Any:
    """Return the tree with the value at the place; what is above it is made."""
    if not place:
        return value
    if place[0] == 0:
        return [put(tree[0] if tree else None, place[1:], value)]
    return {**(tree or {}), place[0]: put((tree or {}).get(place[0]), place[1:], value)}


def wrong_value(declared: Declared, kind: str) -> Any:
    is_switch = isinstance(declared.field, fields.Boolean) and kind == "type"
    return "no such value" if is_switch else copy.deepcopy(WRONG[kind])


def is_refused(declared: Declared, kind: str) -> bool:
    """Return whether the value is wrong, as the declaration has it. A null is a key that is not written."""
    value = wrong_value(declared, kind)
    if value is None:
        return declared.key.required
    if kind in ALWAYS or isinstance(declared.field, Idle):
        return True
    try:
        declared.field.deserialize(value)
    except ValidationError:
        return True
    return False


def judge(case: Case, kind: str, path: str, problems: list[Problem]) -> None:
    """Check what was found of one key with one value at this path."""
    found = [p for p in problems if p.path == path or p.path.startswith((f"{path}.", f"{path}["))]
    if is_refused(case.declared, kind):
        assert found, (path, kind)
    for problem in found:
        assert problem.message and "Traceback" not in problem.message
        if case.declared.key.hidden or is_secret_key(str(case.place[-1])):
            assert "s3cret" not in problem.message
    if not is_refused(case.declared, kind) or isinstance(case.declared.field, Idle):
        return
    assert any(p.severity is Severity.ERROR or p.strict_error for p in found), (path, kind)
    is_unknown_key = kind == "mapping" and isinstance(case.declared.field, fields.Nested)
    if case.effect is None or kind == "null" or (is_unknown_key and not case.effect.strictly):
        return
    assert any(
        p.stopped_modes == case.effect.stopped_modes
        and (not case.effect.fallback or p.message.endswith(f"; until then {case.effect.fallback}"))
        for p in found
    ), (path, kind, found)


def problems_of(site: Site, tree: object) -> list[Problem]:
    site.file.write_text(yaml.dump(tree, Dumper=DUMPER, sort_keys=False))
    site.file.chmod(0o600)
    return list(configuration.checked(site.file, {}).problems)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_kind_of_wrong_value(site: Site, case: Case) -> None:
    last = {**OFFERING, "waldur_api_url": "nowhere"}
    if case.offering is None:
        for kind in WRONG:
            value = wrong_value(case.declared, kind)
            tree = put({"offerings": [last], "no_such_root": 1}, case.place, value)
            problems = problems_of(site, tree)
            judge(case, kind, path_of(case.place), problems)
            paths = {problem.path for problem in problems}
            assert "no_such_root" in paths
            assert case.place == ("offerings",) or "offerings[0].waldur_api_url" in paths
        return
    offering = put(case.offering, ("no_such_key",), 1)
    if case.place != SETTINGS:
        offering = put(offering, (*SETTINGS, "no_such_setting"), 1)
    several = [put(offering, case.place, wrong_value(case.declared, kind)) for kind in WRONG]
    problems = problems_of(site, {"offerings": [*several, last]})
    paths = {problem.path for problem in problems}
    assert f"offerings[{len(several)}].waldur_api_url" in paths
    for index, kind in enumerate(WRONG):
        judge(case, kind, f"offerings[{index}].{path_of(case.place)}", problems)
        assert f"offerings[{index}].no_such_key" in paths
        assert case.place == SETTINGS or f"offerings[{index}].backend_settings.no_such_setting" in paths


def test_all_rooms_are_walked() -> None:
    counts = {room: sum(case.room == room for case in CASES) for room in {case.room for case in CASES}}
    assert min(counts.values()) >= 4 and len(CASES) > 300, counts
    assert all(is_refused(case.declared, kind) for case in CASES for kind in ALWAYS)
    for kind in WRONG.keys() - ALWAYS:
        assert {is_refused(case.declared, kind) for case in CASES} == {True, False}


TEXTS = ("no such value", "", "-1", f"{10**30}", "s3cret\x07")
VARIABLES = [(name, each) for kind in (Variables, Periods) for name, each in keys_of(kind).items()]


@pytest.mark.parametrize(("name", "declared"), VARIABLES, ids=[name for name, _ in VARIABLES])
@pytest.mark.parametrize("text", TEXTS)
def test_each_variable(site: Site, name: str, declared: Declared, text: str) -> None:
    try:
        declared.field.deserialize(text)
        is_wrong = False
    except ValidationError:
        is_wrong = text != ""
    other = "REQUESTS_VERIFY_SSL" if name != "REQUESTS_VERIFY_SSL" else "WALDUR_SITE_AGENT_LOG_LEVEL"
    loaded = site.load({"offerings": [dict(OFFERING)]}, {name: text, other: "perhaps"})
    found = {problem.path: problem for problem in loaded.problems}
    assert other in found
    assert (name in found) == is_wrong
    assert is_wrong or "\x07" not in text
    if is_wrong:
        is_idle = isinstance(declared.field, Idle)
        assert (found[name].severity is Severity.ERROR) != is_idle
        assert "s3cret" not in found[name].message or not declared.key.hidden
