# SPDX-License-Identifier: MIT
"""No script of the reference's name does more than its original is known to do: both sides before it and after it, on a
site where each pass would find something to do. The originals are not run: what each changes is written down here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli.main import run
from rig import warm_python
from rig.operator_process import OperatorProcess
from rig.processes import wait_until
from simulator.server.faults import Fault
from tests.agent.cli.conftest import SCRIPTS, Script
from tests.agent.cli.operator_site import PROGRAMS, OperatorSite

COMPONENTS = {
    "cpu": {"measured_unit": "core-hours", "accounting_type": "limit", "label": "CPU", "unit_factor": 60},
    "mem": {"measured_unit": "GB-hours", "accounting_type": "limit", "label": "RAM", "unit_factor": 61440},
}
LIMIT = '"GrpTRESMins:cpu": {}'
# What every reader leaves behind: the clock, and that an agent was there.
TRACES = re.compile(r"waldur\.(now|statuses|logs|agent_|identities|services|processors)|.*\.modified$")


@dataclass
class Sides:
    """Waldur and the cluster."""

    site: OperatorSite
    file: str
    resource: str

    def both(self) -> dict[str, Any]:
        """Every value of both sides by its path, without traces of reading."""
        waldur = dict(leaves("waldur", self.site.waldur.site.state()))
        values = {path: value for path, value in waldur.items() if not TRACES.match(path)}
        return {**values, **self.cluster()}

    def cluster(self) -> dict[str, Any]:
        """What the emulated cluster holds, by its path."""
        text = self.site.cluster()
        try:
            return dict(leaves("cluster", json.loads(text)))
        except ValueError:
            return {"cluster": text}

    def put_cluster(self, text: str) -> None:
        Path(self.site.environment["SLURM_EMULATOR_STATE_FILE"]).write_text(text)


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(f"{path}.{key}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(f"{path}.{number}", inner)
    else:
        yield path, value


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    """The paths that differ."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


@pytest.fixture
def sides(site: OperatorSite) -> Sides:
    """A member has left, another one has no name, a limit was halved by hand, jobs ran, an order waits, a label has
    changed.
    """
    file = site.configure(
        backend={"enable_user_homedir_account_creation": False},
        components=COMPONENTS,
        membership_sync_backend="slurm",
        reporting_backend="slurm",
        username_management_backend="template",
    )
    site.place("One")
    assert run(["run", "order_process", "--once", "-c", file]) == 0
    assert run(["run", "membership_sync", "--once", "-c", file]) == 0
    waldur = site.waldur
    resource = waldur.site.resources()[0]
    leaver = next(iter(waldur.store.offering_users))
    subprocess.run(
        [site.commands / "slurm-emulator"],
        input=f"usage_inject {leaver.username} 2 a_one\nquit\n",
        text=True, check=True, capture_output=True, env={**os.environ, **site.environment},
    )  # fmt: skip
    waldur.people.remove_member(resource.project_uuid, waldur.store.users[leaver.user_uuid].username)
    waldur.people.add_member(resource.project_uuid, "newcomer")
    sides = Sides(site, file, resource.uuid)
    assert site.cluster().count(LIMIT.format(600)) == 1
    sides.put_cluster(site.cluster().replace(LIMIT.format(600), LIMIT.format(300)))
    site.place("Two")
    # Homes for people whom this host does not know: they wait.
    text = Path(file).read_text()
    Path(file).write_text(text.replace("account_creation: false", "account_creation: true"))
    return sides


# What the original of each is known to change, as paths; the others change nothing.
DOES: Mapping[str, set[str]] = {
    "waldur_sync_resource_limits": {r"waldur\.resources\.0\.limits\.cpu"},
    "waldur_sync_offering_users": {r"waldur\.offering_users\.4\.(state|username)"},
    "waldur_site_load_components": {r"waldur\.offerings\.0\.components\.\d+\.name"},
    "waldur_site_load_historical_usage": {r"waldur\.(user_)?usages\..*"},
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "waldur_site_agent": ("-m", "membership_sync", "--dry-run"),
    "waldur_site_diagnose_slurm_account": ("a_one",),
    "waldur_site_healthz": ("--heartbeat-path", __file__, "--max-age", "1e12"),
    "waldur_site_load_historical_usage": ("-s", "TODAY", "-e", "TODAY", "-t", "STAFF", "--local"),
    "waldur_site_test_order": ("--template", "create/basic.json", "--var", "resource_name=One"),
}
# What differs, so that something is wrong with the account.
CODES = {"waldur_site_diagnose_slurm_account": 1}
WITHOUT_FILE = {"waldur_site_export_plugin_catalogue"}
NAMES = sorted(name for name in SCRIPTS if name.startswith(("waldur_site_", "waldur_sync_")))


def changes(sides: Sides, script: Script, name: str) -> set[str]:
    """What a script changes, which must end as it should."""
    known = {"STAFF": sides.site.waldur.token("staff"), "TODAY": f"{datetime.now(UTC):%Y-%m-%d}"}
    words = [known.get(word, word) for word in WORDS.get(name, ())]
    before = sides.both()
    said = script(name, *words, *(() if name in WITHOUT_FILE else ("-c", sides.file)))
    assert said.code == CODES.get(name, 0), said
    return changed(before, sides.both())


@pytest.mark.parametrize("name", DOES)
def test_a_script_changes_what_its_original_is_known_to_change_and_nothing_else(
    sides: Sides, script: Script, name: str
) -> None:
    found = changes(sides, script, name)
    assert {path for path in found if not any(re.fullmatch(each, path) for each in DOES[name])} == set()
    assert found, "it does what its original does"


def test_scripts_whose_originals_change_nothing_change_nothing(sides: Sides, script: Script) -> None:
    names = [name for name in NAMES if name not in DOES]
    assert len(names) > 4
    assert {name: found for name in names if (found := changes(sides, script, name))} == {}


# What the original of each service is known to change, what shows that it has done its work.
SERVICES: Mapping[str, tuple[set[str], Callable[[Sides], bool]]] = {
    "order_process": (
        {
            r"waldur\.(orders|resources)\.1\..*",
            r"waldur\.offering_users\.4\.(state|username)",  # of the people who get into the new account
            r"cluster\.accounts\.a_two\..*",
            r"cluster\.associations\.[^:]*:a_two:demo:\..*",
            r"cluster\.users\.nnewcomer\..*",
        },
        lambda sides: sides.site.waldur.site.resources()[1].state.value == "OK",
    ),
    "membership_sync": (
        {
            r"waldur\.offering_users\.4\.(state|username)",
            r"waldur\.resources\.0\.(limits\.cpu|last_sync|backend_metadata\..*)",
            r"cluster\.(associations\.(ffrost5|nnewcomer):a_one:demo:|users\.(ffrost5|nnewcomer))\..*",
        },
        lambda sides: sides.site.waldur.site.resources()[0].limits["cpu"] == 5,
    ),
    "report": (
        {r"waldur\.(user_)?usages\..*"},
        lambda sides: len(sides.site.waldur.store.user_usages) > 0,
    ),
}


@pytest.mark.parametrize("mode", SERVICES)
def test_a_service_changes_what_its_original_is_known_to_change_and_nothing_else(
    sides: Sides, mode: str
) -> None:
    may, is_done = SERVICES[mode]
    before = sides.both()
    env = {**os.environ, **sides.site.environment}
    words = [str(PROGRAMS / "waldur_site_agent"), "-m", mode, "-c", sides.file]
    log, python = sides.site.folder / "agent.log", warm_python.of_commands()
    agent = OperatorProcess(words, log, env, ready=" ready.", stop_s=600, python=python)
    agent.start()
    try:
        wait_until("its work", lambda: is_done(sides))
    finally:
        agent.stop()
    found = changed(before, sides.both())
    assert {path for path in found if not any(re.fullmatch(each, path) for each in may)} == set()


def limits(sides: Sides, script: Script, *words: str) -> tuple[int, str, set[str]]:
    """How `waldur_sync_resource_limits` ends, what it says, and what it changes."""
    before = sides.both()
    said = script("waldur_sync_resource_limits", "-c", sides.file, *words)
    return said.code, said.out + said.err, changed(before, sides.both())


def test_limits_of_a_cluster_that_is_away_are_unknown_and_of_an_account_that_is_not_there_none(
    sides: Sides, script: Script
) -> None:
    there = sides.site.cluster()
    sides.put_cluster("no JSON")
    code, said, found = limits(sides, script)
    assert (code, found) == (1, set())
    assert "error: Test SLURM: " in said
    sides.put_cluster(there)
    sides.site.waldur.site.change("resources", sides.resource, backend_id="a_gone")
    code, said, found = limits(sides, script)
    assert (code, found) == (0, set())
    assert "account a_gone is not on the cluster demo" in said


def test_what_waldur_refuses_is_printed_and_ends_with_0_as_before(sides: Sides, script: Script) -> None:
    sides.site.waldur.inject(Fault(path="set_limits", status=403, body="{}"))
    code, said, found = limits(sides, script)
    assert (code, found) == (0, set())
    assert "stuck" in said


def test_limits_that_are_not_the_clusters_to_show_and_options_that_no_original_had(
    sides: Sides, script: Script
) -> None:
    for words in (("-m", "everything"), ("--once",), ("--nonsense",)):
        code, _, found = limits(sides, script, *words)
        assert (code, found) == (2, set()), words
    usual = Path(sides.file).read_text()
    for keys, sentence in (
        ({"limits_source": "waldur"}, "no limits are reported: Waldur's count"),
        ({"policy": {"paused": True}}, "the offering is paused"),
        ({"membership_sync_backend": ""}, "no limits are reported: it has no membership_sync_backend"),
    ):
        tree = yaml.safe_load(usual)
        tree["offerings"][0] |= keys
        Path(sides.file).write_text(yaml.safe_dump(tree))
        code, said, found = limits(sides, script)
        assert (code, found) == (0, set())
        assert sentence in said
