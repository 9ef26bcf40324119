# SPDX-License-Identifier: MIT
"""What slurmrestd cannot do is done by sacctmgr, where the agent's host has it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.core.actions import AddMember, CreateAccount, CreateQos, SetLimits, SetQos
from agent.core.association_actions import RemovePartition, ResetQosUsage
from agent.core.errors import BackendUnavailable
from agent.core.model import Part
from agent.core.periodic import DesiredSettings, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare
from backends.base import Scope
from backends.slurm.schema import NO_RESET
from rig.parts import OWN_GENERATION
from rig.processes import free_ports
from rig.slurm_cluster import SlurmCluster
from rig.slurmrestd import Slurmrestd
from tests.backends.conftest import Connect, by_rest

TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
UNSET = ObservedSettings(1, {})
RESET = DesiredSettings(account="s_reset", resets_usage=True)


@pytest.fixture
def beside(real_slurmrestd: Slurmrestd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Backends of a host with slurmrestd and the commands of the same cluster."""
    cluster = real_slurmrestd.cluster
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    return by_rest(real_slurmrestd.access, tmp_path, str(cluster.bin_path))


def test_raw_usage_is_reset_by_sacctmgr(beside: Connect, real_slurmrestd: Slurmrestd) -> None:
    backend = beside()
    assert backend.apply([CreateAccount(account="s_reset", parent="root")])[0].done
    assert backend.periodic.cannot(RESET, backend.periodic.state("s_reset")) == ""
    before = backend.executed["write"]
    share, reset = backend.periodic.apply(
        [SetFairshare(account="s_reset", after=7), ResetRawUsage(account="s_reset")]
    )
    assert (share.error, reset.error) == (None, None)
    assert reset.commands[0].endswith("where name=s_reset cluster=test set RawUsage=0")
    assert backend.executed["write"] == before + 2
    assert backend.check().problems == backend.check().warnings == ()


def test_limits_go_on_a_qos_whose_count_is_reset_by_sacctmgr(beside: Connect) -> None:
    backend = beside(qos_management={"enabled": True, "apply_limits_to_qos": True, "skip_qos_swap": True})
    made = [
        CreateAccount(account="s_qos", parent="root"),
        CreateQos(account="s_qos"),
        ResetQosUsage(account="s_qos"),
        SetQos(account="s_qos", after=("normal", "s_qos"), default="s_qos"),
        SetLimits(account="s_qos", after=(("cpu", 5),), on_qos=True),
    ]
    assert [outcome.error for outcome in backend.apply(made)] == [None] * 5
    assert backend.commands([made[-1]])[0].endswith("modify qos where name=s_qos set GrpTRESMins=cpu=5")
    account = backend.observe(TREE).accounts["s_qos"]
    assert (account.limits, account.limits_on_qos) == ({"cpu": 5}, True)
    # Nothing is reset where the account could not be made.
    lost = [CreateAccount(account="s_lost", parent="s_none"), ResetQosUsage(account="s_lost")]
    assert all("there is no account s_none" in str(outcome.error) for outcome in backend.apply(lost))


def test_another_cluster_is_not_taken_for_the_one_of_slurmrestd(
    beside: Connect, real_slurmrestd: Slurmrestd
) -> None:
    """sacctmgr says that there was nothing to do where it knows no such account."""
    backend = beside()
    (outcome,) = backend.periodic.apply([ResetRawUsage(account="s_nowhere")])
    assert "lead to the same cluster" in str(outcome.error)


def test_without_sacctmgr_a_reset_is_refused_as_before(real_slurmrestd: Slurmrestd, tmp_path: Path) -> None:
    backend = by_rest(real_slurmrestd.access, tmp_path)()
    assert backend.periodic.cannot(RESET, UNSET).startswith(f"{NO_RESET}. ")


def test_a_reset_is_refused_before_anything_is_written_where_sacctmgr_knows_no_cluster(
    beside: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = replace(RESET, account="s_nowhere")
    assert "lead to the same cluster" in beside().periodic.cannot(asked, UNSET)
    (tmp_path / "empty.conf").touch()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "empty.conf"))
    backend = beside()
    refused = backend.periodic.cannot(RESET, UNSET)
    assert refused.startswith(f"{NO_RESET}, and sacctmgr of this host fails: `")
    assert refused.endswith("so nothing of its message is done")
    assert backend.periodic.cannot(replace(RESET, resets_usage=False), UNSET) == ""


def test_a_reset_waits_for_slurmdbd(
    beside: Connect, monkeypatch: pytest.MonkeyPatch, real_slurmrestd: Slurmrestd, tmp_path: Path
) -> None:
    text = Path(real_slurmrestd.cluster.env["SLURM_CONF"]).read_text()
    conf = tmp_path / "away.conf"
    conf.write_text(
        re.sub(r"(?m)^AccountingStoragePort=.*$", f"AccountingStoragePort={free_ports(1)[0]}", text)
    )
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with pytest.raises(BackendUnavailable):
        beside().periodic.cannot(RESET, UNSET)


def test_the_association_of_all_partitions_is_ended_by_sacctmgr(beside: Connect) -> None:
    backend = beside(enforce_offering_partitions=True)
    made = [
        CreateAccount(account="s_home", parent="root"),
        CreateAccount(account="s_base", parent="root"),
        *(AddMember(account=name, user="nina") for name in ("s_home", "s_base")),
        AddMember(account="s_base", user="nina", partitions=("main",)),
    ]
    for each in made:
        assert backend.apply([each])[0].done
    removal = [RemovePartition(account="s_base", user="nina", partition="")]
    (line,) = backend.commands(removal)
    assert line.endswith("remove user where name=nina account=s_base partition= cluster=test")
    assert [outcome.error for outcome in backend.apply(removal)] == [None]
    assert {row.partition for row in backend.observe(TREE).rows_of("s_base", "nina")} == {"main"}


def test_nothing_is_ended_where_sacctmgr_leads_to_another_cluster_of_the_same_name(
    real_slurmrestd: Slurmrestd,
    slurm_clusters: Callable[[str], SlurmCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = slurm_clusters(OWN_GENERATION)
    other.reset()
    monkeypatch.setenv("SLURM_CONF", other.env["SLURM_CONF"])
    backend = by_rest(real_slurmrestd.access, tmp_path, str(other.bin_path))()
    made = [CreateAccount(account="s_twin", parent="root"), AddMember(account="s_twin", user="mona")]
    for each in (*made, AddMember(account="s_twin", user="mona", partitions=("main",))):
        assert backend.apply([each])[0].done
    other.change("add account s_twin", "add user mona account=s_twin")
    (outcome,) = backend.apply([RemovePartition(account="s_twin", user="mona", partition="")])
    assert "mona" in other.ask("sacctmgr", "-nP", "show", "assoc", "account=s_twin", "format=user")
    assert "lead to the same cluster" in str(outcome.error)
    assert {row.partition for row in backend.observe(TREE).rows_of("s_twin", "mona")} == {"", "main"}


def test_a_partition_of_a_default_account_is_taken_on_every_generation(beside: Connect) -> None:
    """24.11 refuses it by requests, and goes another way by commands."""
    backend = beside(enforce_offering_partitions=True)
    made = [
        CreateAccount(account="s_top", parent="root"),
        CreateAccount(account="s_parts", parent="s_top"),
        AddMember(account="s_parts", user="lina", partitions=("main", "gpu")),
    ]
    for each in made:
        assert backend.apply([each])[0].done
    for _ in range(2):  # which of them is the default one is SLURM's to say
        rows = {row.partition for row in backend.observe(TREE).rows_of("s_parts", "lina")}
        for partition in sorted(rows):
            removal = RemovePartition(
                account="s_parts", user="lina", partition=partition, is_default=True, aside=("s_top",)
            )
            assert [outcome.error for outcome in backend.apply([removal])] == [None]
            seen = backend.observe(TREE)
            assert {row.partition for row in seen.rows_of("s_parts", "lina")} == rows - {partition}
            assert seen.default_accounts["lina"] == "s_parts"
            assert not seen.users_of("s_top") and not seen.closed
            assert backend.apply([made[-1]])[0].done


def test_a_default_qos_that_a_members_own_lack_unseen_is_set_by_sacctmgr(
    beside: Connect, real_slurmrestd: Slurmrestd, tmp_path: Path
) -> None:
    """slurmrestd does not show that QoS are the member's own where they equal the account's."""
    backend = beside()
    made = [
        CreateQos(account="s_fast"),
        CreateAccount(account="s_own", parent="root"),
        SetQos(account="s_own", after=("normal", "s_fast"), default="s_fast"),
        AddMember(account="s_own", user="owen", qos=("normal", "s_fast")),
        CreateQos(account="s_pause"),
    ]
    for each in made:
        assert backend.apply([each])[0].done
    change = SetQos(account="s_own", after=("s_pause",), default="s_pause")
    (outcome,) = by_rest(real_slurmrestd.access, tmp_path)().apply([change])
    assert "have QoS of their own without it" in str(outcome.error)
    # What is written in the same batch does not set the old ones again.
    outcomes = backend.apply([change, SetLimits(account="s_own", after=(("cpu", 5),))])
    assert [outcome.error for outcome in outcomes] == [None, None]
    account = backend.observe(TREE).accounts["s_own"]
    assert (account.qos, account.default_qos, account.limits) == ({"s_pause"}, "s_pause", {"cpu": 5})


def test_a_default_account_that_was_put_aside_is_known_by_all_its_marks(
    beside: Connect, real_slurmrestd: Slurmrestd
) -> None:
    backend = beside()
    assert backend.apply([CreateAccount(account="s_aside", parent="root")])[0].done
    by_hand = ("GrpSubmitJobs=0", "fairshare=parent")
    for user, marks in (("ours", (*by_hand, "MaxSubmitJobs=0")), ("theirs", by_hand)):
        real_slurmrestd.cluster.ask("sacctmgr", "-i", "add", "user", user, "account=s_aside", *marks)
    seen = backend.observe(TREE)
    assert {row.user for row in seen.closed if row.account == "s_aside"} == {"ours", "theirs"}
    assert {row.user for row in seen.put_aside if row.account == "s_aside"} == {"ours"}


def test_a_partition_of_a_default_account_goes_by_no_account_of_the_sites_own(beside: Connect) -> None:
    """It is refused by a sentence where SLURM refuses it: 24.11 and, of whom no default was named, 26.05."""
    backend = beside(enforce_offering_partitions=True)
    made = [
        CreateAccount(account="s_sites", parent="root"),
        CreateAccount(account="s_below", parent="s_sites"),
        AddMember(account="s_below", user="vera", partitions=("main", "gpu")),
    ]
    for each in made:
        assert backend.apply([each])[0].done
    # Which of them is the default one is SLURM's to say.
    removals = [
        RemovePartition(account="s_below", user="vera", partition=name, is_default=True)
        for name in ("gpu", "main")
    ]
    refusals = []
    for removal in removals:
        (outcome,) = backend.apply([removal])
        refusals += [str(outcome.error)] * (outcome.error is not None)
        assert backend.apply([made[-1]])[0].done
    assert refusals
    assert all("needs one above s_below that is Waldur's" in refusal for refusal in refusals)
    seen = backend.observe(TREE)
    assert not seen.users_of("s_sites")
    assert seen.default_accounts["vera"] == "s_below"
