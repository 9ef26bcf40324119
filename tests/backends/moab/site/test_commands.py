# SPDX-License-Identifier: MIT
"""What an operator sees of a MOAB offering: components, the check of its configuration, plans and drift."""

from __future__ import annotations

import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import site as sites
from rig.site import settings_of
from tests.agent.cli.conftest import Command
from tests.backends.moab.site.conftest import WorldFactory
from tests.backends.moab.site.world import COMPONENTS, World

CPU = {"measured_unit": "h", "accounting_type": "limit", "label": "CPU", "unit_factor": 60}


def test_only_deposit_is_loaded_and_the_rest_is_printed(make_world: WorldFactory, command: Command) -> None:
    world = make_world(components={"cpu": CPU, **COMPONENTS})
    said = command("load-components", "-c", world.path, "--json")
    assert said.code == 0
    (offering,) = said.document()["offerings"]
    assert [(c["component"], c["result"]) for c in offering["components"]] == [("deposit", "unchanged")]
    (row,) = world.waldur.store.offerings[world.waldur.seed.offering_uuid].components
    assert row.type == "deposit"
    assert "cpu: MOAB knows no component but `deposit`: it is ignored" in said.err
    assert set(world.site.offering.components) == {"deposit"}


def test_the_configuration_is_judged_by_what_moab_knows(make_world: WorldFactory, command: Command) -> None:
    world = make_world()
    said = command("config-check", "-c", world.path)
    assert (said.code, said.err) == (0, ""), said.out
    world.configure(components={"cpu": CPU}, backend={"slurm_bin_path": "/usr/bin"})
    said = command("config-check", "-c", world.path)
    assert said.code == 2
    assert "MOAB needs the component `deposit`" in said.out + said.err
    assert "slurm_bin_path" in said.out + said.err
    said = command("run", "order_process", "--once", "-c", world.path)
    assert said.code == 1
    assert "until then membership_sync, order_process, report are off for this offering" in said.err


@pytest.mark.parametrize(
    ("other", "neighbours"),
    [
        ({}, {"e" * 32: "Other"}),
        ({"membership_sync_backend": "slurm", "backend_type": "slurm", "backend_settings": {}}, {}),
        ({"membership_sync_backend": ""}, {}),
        # Until both are named, they count as one.
        ({"backend_settings": {"cluster_name": "far"}}, {"e" * 32: "Other"}),
    ],
)
def test_offerings_wait_for_those_of_the_same_mam_only(
    world: World, other: dict[str, Any], neighbours: dict[str, str]
) -> None:
    """Neither names its cluster, as in the example of the seeds."""
    tree = yaml.safe_load(world.path.read_text())
    tree["offerings"].append(
        {**tree["offerings"][0], "name": "Other", "waldur_offering_uuid": "e" * 32, **other}
    )
    world.path.write_text(yaml.safe_dump(tree))
    settings = settings_of(world.path)
    site = sites.connect(settings, settings.offerings[0], Mode.MEMBERSHIP_SYNC)
    assert site.neighbours == neighbours


def test_a_plan_is_printed_as_commands_that_a_shell_takes(world: World, command: Command) -> None:
    world.place("one", deposit=40)
    said = command("plan", "order_process", "--commands", "-c", world.path)
    title, *lines = said.out.splitlines()
    assert (said.code, title) == (0, "# Test MOAB")
    assert [Path(shlex.split(line)[0]).name for line in lines] == [
        "mam-create-account", "mam-create-fund", "mam-create-account", "mam-create-fund", "mam-deposit",
        "mam-modify-account", "mam-modify-account",
    ]  # fmt: skip
    assert world.mam.writes() == []
    for line in lines:
        subprocess.run(["/bin/sh", "-ec", line], check=True, capture_output=True, timeout=600)
    assert world.funds("a_one") == [("40.00", "40.00")]
    world.processed(done=1)
    assert world.funds("a_one") == [("40.00", "40.00")]


def test_drift_and_a_whole_run_by_command(world: World, command: Command) -> None:
    world.stand("a_one")
    with world.mam.changed() as books:
        books.add_user("a_one", "stray")
    said = command("drift", "-c", world.path)
    assert "remove member" in said.out
    said = command("run", "membership_sync", "--once", "--json", "-c", world.path)
    assert (said.code, said.document()["actions"]["remove member"]) == (0, 1)
    assert "stray" not in world.members("a_one")
    assert command("run", "report", "--once", "-c", world.path).code == 0


def test_usage_is_what_was_charged_and_there_is_no_second_count(world: World, command: Command) -> None:
    world.stand("a_one")
    world.charge("a_one", min(world.members("a_one")), "12.75")
    said = command("usage", "--months", "1", "-c", world.path)
    assert said.code == 0
    assert "counted is what jobs were charged on cluster moab" in said.out
    assert said.out.partition("Deposit (EUR), EUR")[2].count("12.75") == 1
    said = command("usage-check", "--month", str(Month.of(datetime.now(UTC))), "-c", world.path)
    assert said.code == 0
    assert "there is no second count" in said.out
    assert "sreport" not in said.out and "TRES" not in said.out
    assert "reported to Waldur is what jobs were charged" in said.out
    assert "requested" not in said.out and "reference" not in said.out
