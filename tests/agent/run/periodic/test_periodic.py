# SPDX-License-Identifier: MIT
"""Periodic limits: read strictly, planned from what is there, reset once in a period. On the real SLURM: see below."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import BackendUnavailable, PlanRefused, SiteAgentError, WaldurError
from agent.core.periodic import DesiredSettings, Granularity, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.plan import periodic
from agent.run.periodic import mode as periodic_limits
from agent.run.site import Site
from agent.state import journal
from agent.state.periodic_policies import PolicyState, PolicyStateLost
from agent.waldur import periodic_messages
from rig.site import configuration, site_of
from rig.slurm_cluster import SlurmCluster
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.agent.state.obstacles import block, damage
from tests.world import World

pytestmark = [pytest.mark.events, pytest.mark.every_slurm(one_of=10)]

ACCOUNT = "a_one"
NOW = datetime(2026, 2, 1, 12)
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
    asked = periodic_messages.desired_settings(
        message(settings={**SETTINGS, **extra, "grp_tres_mins": {"cpu": "600", "mem": 2.0}})
    )
    assert asked == DesiredSettings(ACCOUNT, 52000, {LimitType.GRP_TRES_MINS: {"cpu": 600, "mem": 2}}, True)
    assert periodic_messages.written_at(message(), NOW) == datetime(2026, 1, 1, 0, 10, 2, 113004)
    assert periodic_messages.written_at(message(timestamp=None), NOW) == NOW
    assert periodic_messages.written_at(message(timestamp="2026-01-31T23:59:00-02:00"), NOW) == datetime(
        2026, 2, 1, 1, 59
    )
    assert periodic_messages.desired_settings(message(settings={"fairshare": 0})).fairshare is None


def test_a_type_of_the_configuration_is_for_messages_without_one() -> None:
    bare, usual = {"grp_tres_mins": {"cpu": 600}}, LimitType.MAX_TRES_MINS
    assert periodic_messages.desired_settings(message(settings=bare), usual).limits == {usual: {"cpu": 600}}
    named = periodic_messages.desired_settings(message(), usual)
    assert set(named.limits) == {LimitType.GRP_TRES_MINS}
    with pytest.raises(PlanRefused, match="is for one of them"):
        periodic_messages.desired_settings(message(settings={**bare, "grp_tres": {"cpu": 1}}), usual)


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
    ({"settings": {"fairshare": "1_0"}}, "its fairshare is '1_0'"),
    ({"settings": {"fairshare": "\u0661"}}, "its fairshare is"),
    ({"settings": {"fairshare": "1e999"}}, "its fairshare is '1e999'"),
    ({"settings": {"grp_tres": {"cpu": 1, "CPU": 9}}}, "its grp_tres name 'cpu' twice"),
    ({"timestamp": "soon"}, "its timestamp is 'soon'"),
    ({"timestamp": "0001-01-01T00:00:00+05:00"}, "its timestamp is '0001-01-01T00:00:00+05:00'"),
    ({"timestamp": "9999-12-31T23:59:59-05:00"}, "its timestamp is '9999-12-31T23:59:59-05:00'"),
    ({"timestamp": "2026-02-03T00:00:00"}, "its timestamp is '2026-02-03T00:00:00', which is to come"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanRefused) as refusal:
        (
            periodic_messages.desired_settings(message(**changes)),
            periodic_messages.written_at(message(**changes), NOW),
        )
    assert str(refusal.value).startswith(words)


def test_only_what_differs_is_done() -> None:
    asked = DesiredSettings(ACCOUNT, 5, {LimitType.GRP_TRES_MINS: {"cpu": 1, "mem": 2}}, True)
    has = ObservedSettings(None, {LimitType.GRP_TRES_MINS: {"cpu": 1, "mem": 7}})
    assert periodic.changes(asked, has, reason="r", resets_usage=True) == [
        SetFairshare(account=ACCOUNT, after=5),
        SetPeriodicLimits(account=ACCOUNT, limit_type="GrpTRESMins", after=(("mem", 2),)),
        ResetRawUsage(account=ACCOUNT),
    ]
    done = ObservedSettings(5, asked.limits)
    assert periodic.changes(asked, done, reason="r", resets_usage=False) == []


@pytest.mark.parametrize(
    ("granularity", "name"),
    [("month", "2026-06"), ("quarter", "2026-Q2"), ("year", "2026"), ("total", "total")],
)
def test_periods(granularity: str, name: str) -> None:
    assert periodic.period(datetime(2026, 6, 30), Granularity(granularity)) == name


def test_what_is_older() -> None:
    """Local time without a zone goes back by an hour at the end of summer time."""
    assert not periodic.is_old(NOW, None)
    assert not periodic.is_old(NOW - timedelta(hours=2), NOW)
    assert periodic.is_old(NOW - timedelta(hours=3), NOW)
    assert periodic.is_old(datetime.min, NOW)


def memory(folder: Path) -> PolicyState:
    """As another task finds it."""
    return PolicyState(folder, "o" * 32, "p" * 32, "r" * 32)


def test_a_reset_whose_end_was_not_seen_is_repeated_for_minutes_only(tmp_path: Path) -> None:
    memory(tmp_path).begin_reset("2026-02", NOW)
    memory(tmp_path).begin_reset("2026-02", NOW + timedelta(minutes=9))
    assert not memory(tmp_path).has_reset("2026-02", NOW + timedelta(minutes=10))
    assert memory(tmp_path).has_reset("2026-02", NOW + timedelta(minutes=11))
    memory(tmp_path).end_reset("2026-02", is_done=False)
    assert not memory(tmp_path).has_reset("2026-02", NOW + timedelta(days=1))
    memory(tmp_path).end_reset("2026-02", is_done=True)
    assert memory(tmp_path).has_reset("2026-02", NOW)
    assert not memory(tmp_path).has_reset("2026-03", NOW)


def test_nothing_is_reset_that_cannot_be_written_down(tmp_path: Path) -> None:
    block(tmp_path)
    with pytest.raises(PolicyStateLost, match="it would be reset again"):
        memory(tmp_path).begin_reset("2026-02", NOW)


def test_what_was_done_before_must_be_known(tmp_path: Path) -> None:
    damage(tmp_path)
    with pytest.raises(PolicyStateLost, match="move it aside"):
        memory(tmp_path)


def test_commands_are_kept_until_they_are_reported(tmp_path: Path) -> None:
    memory(tmp_path).add_commands("m", ["one"])
    memory(tmp_path).add_commands("m", ["two"])
    for n in range(7):
        memory(tmp_path).add_commands(f"other {n}", ["x"])
    assert memory(tmp_path).commands("m") == ["one", "two"]
    memory(tmp_path).add_commands("other 8", ["x"])
    assert memory(tmp_path).commands("m") == []
    memory(tmp_path).forget_commands("other 8")
    assert memory(tmp_path).commands("other 8") == []


def test_a_time_to_come_in_the_memory_blocks_nothing(tmp_path: Path) -> None:
    memory(tmp_path).note_applied(NOW + timedelta(days=400), NOW + timedelta(days=400))
    assert memory(tmp_path).applied(NOW) is None
    memory(tmp_path).note_applied(NOW, NOW)
    memory(tmp_path).note_applied(NOW - timedelta(hours=1), NOW)
    assert memory(tmp_path).applied(NOW) == NOW


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


def received(site: Site, waldur: SimulatedWaldur, policy: str, **changes: Any) -> None:
    """As the task does it: what fails is reported as well."""
    resource = waldur.seed.resource_uuids[0]
    document = message(policy_uuid=policy, resource_uuid=resource, **changes)
    try:
        periodic_limits.run(site, document)
    except SiteAgentError as error:
        periodic_limits.report_failure(site.offering, site.state_dir, document, error)


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
    received(World(waldur, tmp_path, backend=backend).site, waldur, policy, **changes)
    ((success, error, commands),) = reported(waldur)
    assert (success, commands) == (False, 0)
    assert error.startswith(words)


@pytest.fixture
def site(slurm: SlurmCluster, waldur: SimulatedWaldur, tmp_path: Path) -> Site:
    slurm.ask("sacctmgr", "-i", "add", "account", f"name={ACCOUNT}", "parent=root", "fairshare=1")
    return site_of(configuration(waldur, tmp_path, backend=PERIODIC))


def on_cluster(slurm: SlurmCluster, columns: str) -> str:
    found = slurm.ask("sacctmgr", "-nP", "show", "assoc", f"account={ACCOUNT}", f"format={columns}")
    return found.strip()


@pytest.mark.by_commands
def test_on_slurm_what_is_asked_is_set_once_and_reported(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    settings = {**SETTINGS, "reset_raw_usage": True}
    received(site, waldur, policy, settings=settings)
    assert on_cluster(slurm, "fairshare,grptresmins") == "52000|cpu=600,gres/gpu=6"
    received(site, waldur, policy, settings=settings)
    received(site, waldur, policy, settings=settings, timestamp="2026-01-20T00:00:00")
    assert reported(waldur) == [(True, "", 3), (True, "", 0), (True, "", 0)]
    received(site, waldur, policy, settings=settings, timestamp="2026-02-01T00:00:00")
    received(site, waldur, policy, settings={"fairshare": 7}, timestamp="2026-01-02T00:00:00")
    assert reported(waldur)[3:] == [(True, "", 1), (True, "", 0)]
    assert on_cluster(slurm, "fairshare") == "52000"
    commands = [r.commands_executed for r in waldur.store.command_results]
    assert [command.split(" set ")[1] for command in commands[0]] == [
        "fairshare=52000",
        "GrpTRESMins=cpu=600,gres/gpu=6",
        "RawUsage=0",
    ]
    assert commands[3][0].endswith("RawUsage=0")
    received(
        site,
        waldur,
        policy,
        settings={"limit_type": "MaxTRESMins", "max_tres_mins": {"cpu": 60}},
        timestamp=None,
    )
    received(site, waldur, policy, settings={"grp_tres": {"cpu": 8, "mem": 4096}}, timestamp=None)
    assert on_cluster(slurm, "maxtresmins,grptres") == "cpu=60|cpu=8,mem=4G"
    assert reported(waldur)[5:] == [(True, "", 1), (True, "", 1)]
    lines = [line["action"]["text"] for line in journal.read(site.state_dir)]
    assert f"reset raw usage of {ACCOUNT}  (policy {policy})" in lines


@pytest.mark.by_commands
def test_on_slurm_an_attempt_that_is_repeated_resets_nothing_again(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    document = message(
        policy_uuid=policy,
        resource_uuid=waldur.seed.resource_uuids[0],
        settings={"fairshare": 77, "reset_raw_usage": True},
    )
    waldur.inject(Fault(path="report-command-result", times=None))
    with pytest.raises(WaldurError):
        periodic_limits.run(site, document)
    assert site.backend.executed["write"] == 2
    waldur.faults.clear()
    assert [c.split(" set ")[1] for c in periodic_limits.run(site, document)] == [
        "fairshare=77",
        "RawUsage=0",
    ]
    received(site, waldur, policy, settings=document["settings"])
    assert site.backend.executed["write"] == 2
    assert reported(waldur) == [(True, "", 2), (True, "", 0)]


def test_on_slurm_a_time_to_come_blocks_nothing_that_follows(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    received(site, waldur, policy, settings={"fairshare": 11}, timestamp="2999-01-01T00:00:00")
    received(site, waldur, policy, settings={"fairshare": 12}, timestamp="0001-01-01T00:00:00+05:00")
    received(site, waldur, policy, settings={"fairshare": 22})
    received(site, waldur, policy, settings={"grp_tres": {"gpu": 1, "gres/gpu": 9}})
    assert on_cluster(slurm, "fairshare,grptres") == "22|"
    assert [(success, error[:29]) for success, error, _ in reported(waldur)] == [
        (False, "its timestamp is '2999-01-01T"),
        (False, "its timestamp is '0001-01-01T"),
        (True, ""),
        (False, "it has two limits for the TRE"),
    ]


def test_on_slurm_what_cannot_be_is_reported_and_changes_nothing(
    slurm: SlurmCluster, waldur: SimulatedWaldur, policy: str, site: Site
) -> None:
    before = on_cluster(slurm, "fairshare,grptresmins")
    received(site, waldur, policy, settings={"grp_tres_mins": {"cpu": 1, "unicorns": 2}})
    received(site, waldur, policy, backend_id="root")
    waldur.site.change("resources", waldur.seed.resource_uuids[0], backend_id="a_gone")
    received(site, waldur, policy, backend_id="a_gone")
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
