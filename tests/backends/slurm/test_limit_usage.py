# SPDX-License-Identifier: MIT
"""What is used of limits: read as slurmctld says it, and unknown where it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.model import Part
from backends.base import BackendContext, Scope
from backends.slurm import parse
from backends.slurm.backend import SlurmBackend
from backends.slurm.plugin import plugin
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from tests.backends.slurm.stand_in import HeadNode, Rule

TEXT = (Path(__file__).parent / "transcripts" / "22.05" / "assoc_mgr.txt").read_text()


@pytest.mark.parametrize("cluster", ["", "test", "TEST"])
def test_accounts_are_read_with_what_counts_against_their_limits(cluster: str) -> None:
    found = parse.limit_usage(TEXT, cluster)
    assert set(found) == {"root", "zz"}
    assert {tres: value for tres, value in found["zz"].items() if value} == {"cpu": 5, "gres/gpu": 2}
    assert found["zz"]["mem"] == 0
    assert found["root"]["cpu"] == 7


def test_another_cluster_and_no_rows_say_nothing() -> None:
    assert parse.limit_usage(TEXT, "other") == {}
    assert (
        parse.limit_usage("Current Association Manager state\nNo associations currently cached in Slurm.\n")
        == {}
    )


def test_without_an_answer_the_use_is_unknown(node: HeadNode) -> None:
    """Here there is no scontrol at all; an outage is the same."""
    seen = node.backend().observe(Scope(parts=frozenset(), usage_of=frozenset({"zz"})))
    assert (seen.complete, dict(seen.used)) == (frozenset(), {})


def test_one_command_asks_for_all_accounts(tmp_path: Path) -> None:
    node = HeadNode(tmp_path, programs=("scontrol",))
    node.rules(Rule("assoc_mgr", stdout=TEXT))
    backend = node.backend({"cluster_name": "test"})
    seen = backend.observe(Scope(parts=frozenset(), usage_of=frozenset({"zz", "aa"})))
    assert node.calls() == ["scontrol --oneliner --clusters=test show assoc_mgr accounts=aa,zz flags=assoc"]
    assert (seen.complete, seen.used["zz"]["cpu"]) == ({Part.USAGE}, 5)


@pytest.mark.every_slurm
@pytest.mark.parametrize("named", [False, True], ids=["cluster of slurm.conf", "cluster_name"])
def test_the_real_slurm_reports_what_an_account_has_used(
    slurm: SlurmCluster, tmp_path: Path, named: bool
) -> None:
    raw = {"slurm_bin_path": str(slurm.bin_path), **({"cluster_name": slurm.cluster} if named else {})}
    settings = plugin.parse(raw, "test").settings
    backend = SlurmBackend(settings, BackendContext("0" * 32, tmp_path))
    slurm.change("add account name=busy parent=root", "add user name=root account=busy")
    asked = Scope(parts=frozenset(), usage_of=frozenset({"busy", "nobody"}))
    wait_until("the account to be known to slurmctld", lambda: "busy" in backend.observe(asked).used)
    seen = backend.observe(asked)
    assert seen.complete == {Part.USAGE}
    assert set(seen.used) == {"busy"}
    assert set(seen.used["busy"].values()) == {0}
    assert {"cpu", "mem"} <= set(seen.used["busy"])
