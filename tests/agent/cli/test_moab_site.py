# SPDX-License-Identifier: MIT
"""A MOAB offering as the sample file has it: homes where the file asks for them, and keys that do nothing are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rig.mam import quick_stand_in
from rig.site import configuration
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec, Scenario
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite
from tests.agent.cli.test_create_homedirs import CREATE, NAMES, on_head_node, run, users

DEPOSIT = {"deposit": {"measured_unit": "EUR", "accounting_type": "limit", "label": "Deposit (EUR)"}}
MOAB: dict[str, Any] = {
    "backend_type": "moab",
    "order_processing_backend": "moab",
    "membership_sync_backend": "moab",
    "reporting_backend": "moab",
    "preserve_unmanaged_backend_users": False,
}
ASKED = {"enable_user_homedir_account_creation": True}


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    deposit = ComponentSpec(type="deposit", name="Deposit", measured_unit="EUR", billing_type="limit")
    with SimulatedWaldur(scenario=Scenario(members_per_project=4, components=(deposit,))) as server:
        yield server


@pytest.fixture
def moab(waldur: SimulatedWaldur, tmp_path: Path) -> OperatorSite:
    return OperatorSite(waldur, tmp_path, commands=quick_stand_in(tmp_path / "mam").bin)


def file_of(site: OperatorSite, **backend: Any) -> str:
    settings = {"moab_bin_path": str(site.commands), **backend}
    # Without the keys of SLURM that the usual configuration has.
    path = configuration(site.waldur, site.folder, backend=settings, components=DEPOSIT, **MOAB)
    path.write_text("".join(line for line in path.open() if "default_account_policy" not in line))
    return str(path)


def test_members_get_homes_where_the_file_asks_for_them(moab: OperatorSite) -> None:
    users(moab)
    prefix = on_head_node(moab, *NAMES[:3])
    file = file_of(moab, **ASKED)
    moab.place("One", deposit=100)
    for mode in ("order_process", "membership_sync"):
        said = run(prefix, "run", mode, "--once", "-c", file)
        assert said.code == 0, said.err
    made = sorted(home.name for home in (moab.folder / "homes").iterdir())
    assert made and set(made) <= set(NAMES[:3])
    (resource,) = moab.waldur.site.resources()
    assert resource.backend_id == "a_one"
    said = run(prefix, *CREATE, "-c", file)
    assert (said.code, sorted(home.name for home in (moab.folder / "homes").iterdir())) == (
        0,
        list(NAMES[:3]),
    )


def test_a_quota_is_set_there_too(moab: OperatorSite) -> None:
    """The tool of the quota is not on this host: the home is made, and the log says what is missing."""
    users(moab)
    quota = {"homedir_quota": {"provider": "xfs", "mount_point": "/home", "block_hardlimit": "20g"}}
    said = run(on_head_node(moab, "ann"), *CREATE, "-c", file_of(moab, **ASKED, **quota))
    assert (moab.folder / "homes" / "ann").is_dir()
    assert (said.code, "xfs_quota" in said.out + said.err) == (1, True)


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (
            {},
            "enable_user_homedir_account_creation is not written, and moab makes homes only where it is true",
        ),
        ({"enable_user_homedir_account_creation": False}, "enable_user_homedir_account_creation is false"),
    ],
    ids=["not written", "false"],
)
def test_no_home_is_made_unasked(moab: OperatorSite, keys: dict[str, Any], why: str) -> None:
    """The agent before this one made none on MOAB: a site that switches is surprised by none."""
    users(moab)
    said = run(on_head_node(moab, *NAMES), *CREATE, "-c", file_of(moab, **keys))
    assert (said.code, said.out) == (0, f"Test SLURM: no homes are made: {why}\n")
    assert not (moab.folder / "homes" / "ann").exists()


WITHOUT_EFFECT = {
    "periodic_limits": ({"enabled": True}, "MOAB has no shares"),
    "usage_tres_source": ("allocated", "MOAB charges jobs by its own rules"),
    "homedir_quota": (
        {"provider": "xfs", "mount_point": "/home", "block_hardlimit": "20g"},
        "moab makes homes only where `enable_user_homedir_account_creation: true` is written",
    ),
    "qos_default": ("normal", "it has no effect with moab: only slurm reads it"),
    "qos_management": ({"enabled": True}, "it has no effect with moab: only slurm reads it"),
}


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_what_does_nothing_there_is_named(moab: OperatorSite, command: Command, key: str) -> None:
    value, why = WITHOUT_EFFECT[key]
    said = command("config-check", "-c", file_of(moab, **{key: value}))
    (line,) = (line for line in said.out.splitlines() if f"backend_settings.{key}: it has no effect" in line)
    assert (said.code, line.startswith("warning: "), why in line) == (0, True, True), said.out


def test_a_key_that_nobody_reads_is_an_error_as_ever(moab: OperatorSite, command: Command) -> None:
    said = command("config-check", "-c", file_of(moab, qos_defualt="normal"))
    assert (said.code, "unknown key 'qos_defualt'" in said.out) == (2, True)


def test_periodic_limits_do_not_keep_deposits_apart(moab: OperatorSite, command: Command) -> None:
    """They stop limits from being copied where a policy writes them: on MOAB there is none that could."""
    users(moab)
    file = file_of(moab, periodic_limits={"enabled": True}, **{"enable_user_homedir_account_creation": False})
    moab.place("One", deposit=100)
    assert command("run", "order_process", "--once", "-c", file).code == 0
    (resource,) = moab.waldur.site.resources()
    moab.waldur.site.change("resources", resource.uuid, limits={"deposit": 70})
    assert command("run", "membership_sync", "--once", "-c", file).code == 0
    assert moab.waldur.resource(resource.uuid).limits == {"deposit": 100}


def test_what_is_said_of_an_account_and_a_mam_that_is_away_is_in_words_of_moab(
    moab: OperatorSite, command: Command
) -> None:
    file = file_of(moab)
    moab.place("One", deposit=100)
    assert command("run", "order_process", "--once", "-c", file).code == 0
    found = command("diagnose-account", "a_one", "-v", "-c", file)
    assert "MOAB Account Diagnostic: a_one" in found.out
    assert "[OK]       deposits[deposit]: 100 == 100" in found.out
    quick_stand_in(moab.folder / "mam").faults({"needle": "mam-", "code": 1, "stderr": "no server\n"})
    away = command("diagnostics", "-c", file)
    assert away.code == 1
    assert "`mam-list-accounts --raw --quiet --show Name`" in away.out
    said = f"{found.out}{away.out}"
    assert not [
        word
        for word in ("SLURM", "sacctmgr", "slurm", "TRES-", "Grp")
        if word in said.replace("Test SLURM", "")
    ]
