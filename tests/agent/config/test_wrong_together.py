# SPDX-License-Identifier: MIT
"""Several wrong keys in one offering: each problem that a key has alone is there, so that one run shows all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from agent.config.field_types import displayed
from agent.config.schema import BackendSettingsKeys, ComponentKeys, OfferingKeys
from backends.moab.schema import MoabSettings
from backends.slurm.rest_access import RestAccess
from backends.slurm.schema import SlurmSettings

from .samples import CPU, Site
from .test_wrong_kinds import (
    MOAB,
    REST,
    SETTINGS,
    SLURM,
    WRONG,
    Place,
    cases,
    is_refused,
    path_of,
    problems_of,
    put,
    wrong_value,
)

URL = {"url": "https://slurm.example.com", "username": "agent", "token_env": "SLURM_JWT"}
BASES = {
    "core": SLURM,
    "slurm": SLURM,
    "slurmrestd": put(REST, (*SETTINGS, "rest_api"), URL),
    "moab": MOAB,
}
DEPOSIT = ("backend_components", "deposit")
DECLARED = {
    "core": [*cases("core", SLURM, OfferingKeys), *cases("core", SLURM, BackendSettingsKeys, SETTINGS)],
    "slurm": [*cases("slurm", SLURM, SlurmSettings, SETTINGS)],
    "slurmrestd": [
        *cases("slurmrestd", REST, SlurmSettings, SETTINGS),
        *cases("slurmrestd", REST, RestAccess, (*SETTINGS, "rest_api")),
    ],
    "moab": [
        *cases("moab", MOAB, MoabSettings, SETTINGS),
        *cases("moab", MOAB, BackendSettingsKeys, SETTINGS),
        *cases("moab", MOAB, ComponentKeys, DEPOSIT),
    ],
}
# Values that are well formed and break a rule of their backend, or are unknown; with the keys by which the rule goes.
ENABLED, MODE = "backend_settings.qos_management.enabled", "backend_settings.execution_mode"
SKIPS = "backend_settings.qos_management.skip_qos_swap"
RULES: dict[str, list[tuple[Place, Any, set[str]]]] = {
    "core": [
        (("oidc_client_id",), "me", set()),
        (("stomp_enabled",), True, {"stomp_membership_sync_enabled"}),
        ((*SETTINGS, "homedir_quotta"), 1, set()),
        (("backend_components", "cpu", "fund"), 1, set()),
        (("backend_components", "g p u"), {}, set()),
    ],
    "slurm": [
        ((*SETTINGS, "default_account"), "a b", set()),
        ((*SETTINGS, "qos_management", "apply_limits_to_qos"), True, {ENABLED, SKIPS}),
        ((*SETTINGS, "qos_management", "max_wall"), "soon", {ENABLED}),
        ((*SETTINGS, "qos_management"), {"enabled": True, "max_wall": "soon"}, set()),
        ((*SETTINGS, "rest_api", "ulr"), "x", {MODE}),
        (("backend_components", "cpu", "fund"), 1, set()),
    ],
    "slurmrestd": [
        ((*SETTINGS, "default_account"), "a b", set()),
        ((*SETTINGS, "qos_management"), {"enabled": True, "apply_limits_to_qos": True}, {MODE}),
        ((*SETTINGS, "rest_api", "ulr"), "x", set()),
        ((*SETTINGS, "rest_api", "url"), "http://slurm.example.com", {MODE}),
        ((*SETTINGS, "cluster_name"), "", {MODE}),
        ((*SETTINGS, "command_prefix"), "docker exec c", {MODE}),
        ((*SETTINGS, "periodic_limits"), {"enabled": True}, {MODE}),
    ],
    "moab": [
        ((*DEPOSIT, "fund"), 1, set()),
        (("backend_components", "cpu"), {**CPU, "unit_factor": 0}, set()),
        ((*SETTINGS, "moab_binpath"), "/usr", set()),
    ],
}


def drawn(room: str, size: int, count: int) -> Iterator[list[tuple[Place, Any]]]:
    """Yield lists of as many wrong values, often the first by a rule; none of them is below another."""
    lots = random.Random(f"{room} {size}")
    wrong = [
        (case.place, wrong_value(case.declared, kind), set[str]())
        for case in DECLARED[room]
        for kind in sorted(WRONG)
        if is_refused(case.declared, kind)
    ]
    for _ in range(count):
        while True:
            first = lots.choice(RULES[room] if lots.random() < 0.5 else wrong)
            several = [first, *lots.sample(wrong, size - 1)]
            places = [place for place, _, _ in several]
            is_apart = not any(a[: len(b)] == b or b[: len(a)] == a for a, b in combinations(places, 2))
            if is_apart and not any(
                key.startswith(path_of(place)) for key in first[2] for place in places[1:]
            ):
                break
        yield [(place, value) for place, value, _ in several]


def found(site: Site, room: str, values: list[tuple[Place, Any]]) -> set[tuple[str, str]]:
    """Return the problems of an offering with these values, but for keys that another one leaves without effect: one
    sentence names them all.
    """
    offering: Any = BASES[room]
    for place, value in values:
        offering = put(offering, place, value)
    problems = problems_of(site, {"offerings": [offering]})
    return {
        (problem.path.removeprefix("offerings[0]."), problem.message)
        for problem in problems
        if " no effect" not in problem.message
    }


@pytest.mark.parametrize("room", BASES)
@pytest.mark.parametrize(("size", "count"), [(2, 60), (4, 15)])
def test_one_run_shows_all_problems(site: Site, room: str, size: int, count: int) -> None:
    differing = []
    for several in drawn(room, size, count):
        names = {path_of(place): displayed(value) for place, value in several}
        together, alone = found(site, room, several), set[tuple[str, str]]()
        for place, value in several:
            others = names.keys() - {path_of(place)}
            # What one key misses is written in the other, though wrong.
            alone |= {problem for problem in found(site, room, [(place, value)]) if problem[0] not in others}
        if alone != together:
            differing.append((names, "lost", alone - together, "new", together - alone))
    assert not differing, "\n".join(map(str, differing[:8])) + f"\n{len(differing)} of {count}"
