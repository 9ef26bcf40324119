# SPDX-License-Identifier: MIT
"""Periodic limits: read strictly, planned from what is there, reset once in a period. On the real SLURM: see below."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent.core import periodic
from agent.core.errors import BackendUnavailable, PlanRefused, SiteAgentError
from agent.core.periodic import (
    Granularity,
    LimitType,
    PeriodicState,
    PeriodicWish,
    ResetRawUsage,
    SetFairshare,
    SetPeriodicLimits,
)
from agent.run import journal, periodic_limits
from agent.run.sites import Site
from agent.sim.seed import Scenario
from agent.sim.server import SimulatedWaldur
from tests.membership.world import World
from tests.real.slurm_cluster import SlurmCluster
from tests.site import configuration, site_of

ACCOUNT = "a_one"
SETTINGS = {"fairshare": 52000, "limit_type": "GrpTRESMins", "grp_tres_mins": {"cpu": 600, "gpu": 6}}


def message(**changes: Any) -> dict[str, Any]:
    return {
        "action": "apply_periodic_settings",
        "backend_id": ACCOUNT,
        "settings": SETTINGS,
        "timestamp": "2026-01-01T00:10:02.113004",
        **changes,
    }


def test_a_message_as_waldur_writes_it() -> None:
    extra = {"qos_threshold": {"billing": 1}, "carryover_details": {}, "reset_raw_usage": True}
    asked = periodic.wish(
        message(settings={**SETTINGS, **extra, "grp_tres_mins": {"cpu": "600", "mem": 2.0}})
    )
    assert asked == PeriodicWish(ACCOUNT, 52000, {LimitType.GRP_TRES_MINS: {"cpu": 600, "mem": 2}}, True)
    assert periodic.moment(message()) == datetime(2026, 1, 1, 0, 10, 2, 113004)
    assert periodic.wish(message(settings={"fairshare": 0})).fairshare is None


REFUSED = [
    ({"action": "reboot"}, "its action is 'reboot'"),
    ({"backend_id": ""}, "it has no backend_id"),
    ({"backend_id": None}, "it has no backend_id"),
    ({"settings": None}, "its settings are no object"),
    ({"settings": {"fairshare": -1}}, "its fairshare is -1: a whole number"),
    ({"settings": {"fairshare": True}}, "its fairshare is True"),
    ({"settings": {"fairshare": 2**31}}, "its fairshare is"),
    ({"settings": {"fairshare": "many"}}, "its fairshare is 'many'"),
    ({"settings": {"grp_tres_mins": {"cpu": 1.5}}}, "its grp_tres_mins cpu is 1.5"),
    ({"settings": {"grp_tres_mins": {"cpu": float("nan")}}}, "its grp_tres_mins cpu is nan"),
    ({"settings": {"grp_tres_mins": {"cpu": float("inf")}}}, "its grp_tres_mins cpu is inf"),
    ({"settings": {"grp_tres_mins": [1]}}, "its grp_tres_mins are no object"),
    ({"settings": {"grp_tres_mins": {f"t{n}": 1 for n in range(99)}}}, "its grp_tres_mins name 99 TRES"),
    ({"settings": {"limit_type": "GrpTRES", "grp_tres_mins": {"cpu": 1}}}, "its limit_type is 'GrpTRES'"),
    ({"settings": {"reset_raw_usage": "yes"}}, "its reset_raw_usage is 'yes'"),
    ({"timestamp": "soon"}, "its timestamp is 'soon'"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanRefused) as refusal:
        (periodic.wish(message(**changes)), periodic.moment(message(**changes)))
    assert str(refusal.value).startswith(words)


def test_only_what_differs_is_done() -> None:
    asked = PeriodicWish(ACCOUNT, 5, {LimitType.GRP_TRES_MINS: {"cpu": 1, "mem": 2}}, True)
    has = PeriodicState(None, {LimitType.GRP_TRES_MINS: {"cpu": 1, "mem": 7}})
    assert periodic.actions(asked, has, reason="r", resets_usage=True) == [
        SetFairshare(account=ACCOUNT, after=5),
        SetPeriodicLimits(account=ACCOUNT, limit_type="GrpTRESMins", after=(("mem", 2),)),
        ResetRawUsage(account=ACCOUNT),
    ]
    done = PeriodicState(5, asked.limits)
    assert periodic.actions(asked, done, reason="r", resets_usage=False) == []


@pytest.mark.parametrize(
    ("granularity", "name"),
    [("month", "2026-06"), ("quarter", "2026-Q2"), ("year", "2026"), ("total", "total")],
)
def test_periods(granularity: str, name: str) -> None:
    assert periodic.period(datetime(2026, 6, 30), Granularity(granularity)) == name


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.0", scenario=Scenario(allocations_per_project=1)) as server:
        server.site.change("resources", server.seed.resource_uuids[0], backend_id=ACCOUNT)
        yield server


@pytest.fixture
def policy(waldur: SimulatedWaldur) -> str:
    return waldur.site.add_policy(period=2)


def reported(waldur: SimulatedWaldur) -> list[tuple[bool, str, int]]:
    return [(r.success, r.error_message, len(r.commands_executed)) for r in waldur.store.command_results]


def told(site: Site, waldur: SimulatedWaldur, policy: str, **changes: Any) -> None:
    """As the task does it: what fails is reported as well."""
    resource = waldur.seed.resource_uuids[0]
    document = message(policy_uuid=policy, resource_uuid=resource, **changes)
    try:
        periodic_limits.run(site, document)
    except SiteAgentError as error:
        periodic_limits.report_failure(site, document, error)


PERIODIC = {"periodic_limits": {"enabled": True}}


@pytest.mark.parametrize(
    ("backend", "changes", "words"),
    [
        ({}, {}, "periodic_limits_not_enabled: "),
        (PERIODIC, {}, "Backend slurm does not support periodic settings"),
        (PERIODIC, {"backend_id": None}, "it has no backend_id"),
    ],
)
def test_failures_are_reported(
    waldur: SimulatedWaldur, policy: str, tmp_path: Path, backend: Any, changes: Any, words: str
) -> None:
    """The cluster in memory has no such power."""
    told(World(waldur, tmp_path, backend=backend).site, waldur, policy, **changes)
    ((success, error, commands),) = reported(waldur)
    assert (success, commands) == (False, 0)
    assert error.startswith(words)


@pytest.fixture
def site(
    slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Site:
    monkeypatch.setenv("SLURM_CONF", slurm.env["SLURM_CONF"])
    slurm.ask("sacctmgr", "-i", "add", "account", f"name={ACCOUNT}", "parent=root", "fairshare=1")
    return site_of(configuration(waldur, tmp_path, backend=PERIODIC))


def on_cluster(slurm: SlurmCluster, columns: str) -> str:
    found = slurm.ask("sacctmgr", "-nP", "show", "assoc", f"account={ACCOUNT}", f"format={columns}")
    return found.strip()


def test_on_slurm_what_is_asked_is_set_once_and_reported(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    settings = {**SETTINGS, "reset_raw_usage": True}
    told(site, waldur, policy, settings=settings)
    assert on_cluster(slurm, "fairshare,grptresmins") == "52000|cpu=600,gres/gpu=6"
    told(site, waldur, policy, settings=settings)
    told(site, waldur, policy, settings=settings, timestamp="2026-01-20T00:00:00")
    assert reported(waldur) == [(True, "", 3), (True, "", 0), (True, "", 0)]
    told(site, waldur, policy, settings=settings, timestamp="2026-02-01T00:00:00")
    told(site, waldur, policy, settings={"fairshare": 7}, timestamp="2026-01-02T00:00:00")
    assert reported(waldur)[3:] == [(True, "", 1), (True, "", 0)]
    assert on_cluster(slurm, "fairshare") == "52000"
    commands = [r.commands_executed for r in waldur.store.command_results]
    assert [command.split(" set ")[1] for command in commands[0]] == [
        "fairshare=52000",
        "GrpTRESMins=cpu=600,gres/gpu=6",
        "RawUsage=0",
    ]
    assert commands[3][0].endswith("RawUsage=0")
    told(
        site,
        waldur,
        policy,
        settings={"limit_type": "MaxTRESMins", "max_tres_mins": {"cpu": 60}},
        timestamp=None,
    )
    told(site, waldur, policy, settings={"grp_tres": {"cpu": 8, "mem": 4096}}, timestamp=None)
    assert on_cluster(slurm, "maxtresmins,grptres") == "cpu=60|cpu=8,mem=4G"
    assert reported(waldur)[5:] == [(True, "", 1), (True, "", 1)]
    lines = [line["action"]["text"] for line in journal.read(site.state_dir)]
    assert f"reset raw usage of {ACCOUNT}  (policy {policy})" in lines


def test_on_slurm_what_cannot_be_is_reported_and_changes_nothing(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    before = on_cluster(slurm, "fairshare,grptresmins")
    told(site, waldur, policy, settings={"grp_tres_mins": {"cpu": 1, "unicorns": 2}})
    told(site, waldur, policy, backend_id="root")
    waldur.site.change("resources", waldur.seed.resource_uuids[0], backend_id="a_gone")
    told(site, waldur, policy, backend_id="a_gone")
    errors = [error for success, error, commands in reported(waldur) if not success and not commands]
    assert [error.split(" (")[0] for error in errors] == [
        "this cluster does not track the TRES unicorns",
        f"it is about account root, and resource {waldur.seed.resource_uuids[0]} has {ACCOUNT}",
        "account a_gone is not on the cluster",
    ]
    assert on_cluster(slurm, "fairshare,grptresmins") == before
    slurm.stop_slurmdbd()
    resource = waldur.seed.resource_uuids[0]
    document = message(policy_uuid=policy, resource_uuid=resource, backend_id="a_gone")
    with pytest.raises(BackendUnavailable):
        periodic_limits.run(site, document)
    assert len(reported(waldur)) == 3
