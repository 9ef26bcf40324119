# SPDX-License-Identifier: MIT
"""SLURM through slurmrestd, that of slurm-emulator: orders, usage, jobs, periodic settings, a Unix socket. What every
backend keeps is in tests/backends/test_contract.py.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agent.config.findings import Findings
from agent.core.actions import (
    AddMember,
    BlockMember,
    CancelJobs,
    CreateAccount,
    CreateQos,
    SetLimits,
    SetUserLimits,
)
from agent.core.association_actions import KeepDefaultAccount, RemovePartition, SetMemberQos
from agent.core.errors import PlanRefused, SiteAgentError
from agent.core.model import MemberQos, Part
from agent.core.periodic import LimitType, ObservedSettings
from agent.core.periods import Month
from agent.core.usage import UsageQuery
from agent.http.client import Params
from agent.run import passes
from agent.run.periodic import mode as periodic_limits
from agent.run.results import Result
from agent.run.site import Site
from agent.state.passes import last
from backends.base import Scope, UsageCheck
from backends.slurm.rest.client import RestClient
from backends.slurm.rest.rows import ASSOCIATIONS
from backends.slurm.rest_access import read_access
from rig.processes import free_ports
from rig.site import configuration, site_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tests.backends import emulator_rest
from tests.backends.conftest import EVERY_SLURMRESTD, NO_COMMANDS, Connect

Access = dict[str, str]
# 24.11 takes no partition of anybody's default account away.
BUT_24_11 = pytest.mark.parametrize(
    "slurmrestd_kind", ["emulator", pytest.param("26.05", marks=pytest.mark.real_part)], indirect=True
)
TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
ACCOUNT = "a_one"
MAY = UsageQuery(Month(2026, 5))


def made(on_rest: Connect, name: str, *users: str) -> Any:
    backend = on_rest()
    account = CreateAccount(account=name, parent="root", description="d", organization="o")
    outcomes = backend.apply([account, *(AddMember(account=name, user=user) for user in users)])
    assert [outcome.error for outcome in outcomes] == [None] * (1 + len(users))
    return backend


def client(access: Access) -> RestClient:
    found = read_access(access, "x", Findings())
    assert found
    return RestClient(found, answer_bytes=2**24)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur(scenario=Scenario(members_per_project=2, allocations_per_project=1)) as server:
        yield server


def site(
    waldur: SimulatedWaldur, folder: Path, access: Access, *, limit_cuts: str = "hold", **settings: Any
) -> Site:
    rest = {"execution_mode": "rest", "cluster_name": "test", "rest_api": access}
    rest["slurm_bin_path"] = NO_COMMANDS
    backend = {**rest, "enable_user_homedir_account_creation": False, **settings}
    # What is used of limits slurmrestd does not report: every cut would be held.
    return site_of(configuration(waldur, folder, backend=backend, policy={"limit_cuts": limit_cuts}))


def tree_reads(site: Site) -> Callable[[], tuple[int, int]]:
    """Return what says how many reads of all associations, and of named ones, there were since it was asked last."""
    client: RestClient = site.backend._client  # type: ignore[attr-defined]
    read, kinds = client.read, Counter[bool]()

    def noted(path: str, params: Params = ()) -> Any:
        kinds[[key for key, _ in params] == ["cluster"]] += path == ASSOCIATIONS
        return read(path, params)

    def since() -> tuple[int, int]:
        return kinds.pop(True, 0), kinds.pop(False, 0)

    client.read = noted  # type: ignore[method-assign]
    return since


@EVERY_SLURMRESTD
def test_orders_make_change_and_end_an_allocation(
    rest_access: Access, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    through = site(waldur, tmp_path, rest_access)
    before = set(through.backend.observe(TREE).accounts)
    asked = tree_reads(through)
    project = waldur.seed.project_uuids[0]
    order = waldur.place_create_order(project, "First light", limits={"cpu": 10, "mem": 2})
    report = passes.process_orders(through)
    assert [o.result for o in report.orders] == [Result.DONE], report.as_json()
    assert asked() == (1, 3)
    observed = through.backend.observe(TREE)
    (name,) = [new for new in observed.accounts.keys() - before if new.startswith("a_")]
    assert observed.accounts[name].limits == {"cpu": 600, "mem": 122880}
    assert len(observed.users_of(name)) == 2
    resource = waldur.order(order).resource_uuid
    waldur.orders.place_update(resource, {"cpu": 20, "mem": 2})
    asked()
    assert [o.result for o in passes.process_orders(through).orders] == [Result.DONE]
    assert asked() == (1, 2)
    assert through.backend.observe(TREE).accounts[name].limits == {"cpu": 1200, "mem": 122880}
    leaver = waldur.store.users[waldur.store.active_grants(project)[0].user_uuid]
    waldur.people.remove_member(project, leaver.username)
    asked()
    report = passes.sync_members(through)
    assert [o.action.verb for o in report.outcomes if o.action.where == "cluster"] == ["remove member"]
    assert asked() == (1, 4)
    waldur.orders.place_terminate(resource)
    assert [o.result for o in passes.process_orders(through).orders] == [Result.DONE]
    # Two for each account that goes: what is below it and in it, and whether another cluster has it or its users.
    assert asked() == (1, 11)
    assert name not in through.backend.observe(TREE).accounts


@EVERY_SLURMRESTD
def test_several_changes_of_one_batch_meet_the_rows_that_it_made(on_rest: Connect) -> None:
    backend = on_rest()
    actions = [
        CreateAccount(account="r_batch", parent="root"),
        SetLimits(account="r_batch", after=(("cpu", 5), ("gres/gpu", 2))),
        AddMember(account="r_batch", user="ann", default_account="root"),
        SetUserLimits(account="r_batch", user="ann", after=(("cpu", 3),)),
        BlockMember(account="r_batch", user="ann"),
    ]
    lines = backend.commands(actions)
    outcomes = backend.apply(actions)
    assert [outcome.error for outcome in outcomes] == [None] * 5
    assert [line for outcome in outcomes for line in outcome.commands] == list(lines)
    assert backend.executed["write"] == 5
    observed = backend.observe()
    assert observed.accounts["r_batch"].limits == {"cpu": 5, "gres/gpu": 2}
    assert observed.user_limits["r_batch", "ann"] == {"cpu": 3}
    assert observed.default_accounts["ann"] == "root"
    assert "ann" in observed.users_of("root")
    assert not observed.accounts["r_batch"].qos


def test_a_month_is_summed_as_by_sacct(on_rest: Connect) -> None:
    """One node-hour of the emulator is an hour of 64 processors; a job ends when it was injected."""
    from emulator.core.database import SlurmDatabase  # type: ignore[import-untyped]
    from emulator.core.time_engine import TimeEngine  # type: ignore[import-untyped]
    from emulator.core.usage_simulator import UsageSimulator  # type: ignore[import-untyped]

    backend = made(on_rest, "r_used", "ann", "bob")
    engine, database = TimeEngine(), SlurmDatabase()
    database.load_state()
    usage = UsageSimulator(engine, database)
    usage.inject_usage("r_used", "ann", 2, datetime(2026, 5, 10, 12))
    usage.inject_usage("r_used", "bob", 1, datetime(2026, 5, 10, 12))
    usage.inject_usage("r_used", "bob", 2, datetime(2026, 5, 1, 0, 30))
    usage.inject_usage("r_used", "bob", 5, datetime(2026, 6, 10, 12))
    database.save_state()
    found = backend.usage(MAY)
    users = {user: counts["cpu"] for user, counts in found.accounts["r_used"].users.items()}
    assert users == {"ann": 64 * 7200, "bob": 64 * (3600 + 1800)}
    assert found.accounts["r_used"].total["gres/gpu"] == 4 * (7200 + 3600 + 1800)
    assert found.records == 3
    (id_,) = {job["job_id"] for job in jobs_of(backend, "ann")}
    (one,) = backend.job_uses(MAY, [str(id_)])
    assert (one.account, one.user, one.seconds) == ("r_used", "ann", 7200)
    assert "account=r_used" in backend.usage_command(MAY, "r_used")
    assert not isinstance(backend, UsageCheck)


def jobs_of(backend: Any, user: str) -> list[dict[str, Any]]:
    """The jobs of a user in May, as slurmrestd shows them."""
    window = [("start_time", "1777593600"), ("end_time", "1780272000")]
    return [job for job in backend._client.read("slurmdb/jobs/", window)["jobs"] if job["user"] == user]


def test_a_month_too_large_for_one_answer_is_read_in_pieces(
    on_rest: Connect, rest_access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = on_rest().usage(MAY)
    assert whole.records == 3
    monkeypatch.setattr("backends.slurm.rest.backend.ANSWER_BYTES", 4500)
    pieces = on_rest(rest_api={**rest_access, "api_version": "v0.0.43"})
    assert pieces.usage(MAY) == whole
    asked = pieces.executed["read"]
    assert asked > 2
    assert pieces.usage(MAY) == whole
    assert pieces.executed["read"] - asked < asked  # it is remembered


@EVERY_SLURMRESTD
def test_jobs_are_seen_and_cancelled(on_rest: Connect, rest_access: Access) -> None:
    """The real one runs jobs of people whom this machine knows; `rig/apart.sh` brings two."""
    backend = made(on_rest, "r_jobs", "jobs1", "jobs2")
    rest = client(rest_access)
    for user in ("jobs1", "jobs1", "jobs2"):
        job = {
            "account": "r_jobs",
            "user_name": user,
            "user_id": user,
            "time_limit": 60,
            "script": "#!/bin/sh\nsleep 900\n",
            "current_working_directory": "/",
            "standard_output": "/dev/null",
            "environment": ["PATH=/bin"],
        }
        rest.write("POST", "slurm/job/submit", body={"job": job})
    jobs = Scope(frozenset(), jobs_of=frozenset({"r_jobs", "root"}))
    assert backend.observe(jobs).active_users == {("r_jobs", "jobs1"): 2, ("r_jobs", "jobs2"): 1}
    (outcome,) = backend.apply([CancelJobs(account="r_jobs", user="jobs1")])
    assert outcome.done and len(outcome.commands) == 2
    left = backend.observe(jobs)
    assert (left.active_jobs, left.active_users) == ({"r_jobs": 1, "root": 0}, {("r_jobs", "jobs2"): 1})
    assert backend.apply([CancelJobs(account="r_jobs")])[0].done
    assert not backend.observe(jobs).active_users


def test_a_socket_of_this_machine_needs_no_network(on_rest: Connect, tmp_path: Path) -> None:
    socket = str(tmp_path / "s")
    with emulator_rest.serving("slurmrestd", socket):
        token = on_rest()._settings.rest.token_file
        backend = on_rest(rest_api={"url": f"unix://{socket}", "username": "root", "token_file": token})
        assert "root" in backend.observe(TREE).accounts
        assert backend.check().problems == ()
        (line,) = backend.commands([CreateAccount(account="r_socket", parent="root")])
        assert line.startswith(f"curl --silent --header @headers --unix-socket {socket} --request POST")
    with pytest.raises(SiteAgentError, match=f"no answer from unix://{socket}"):
        backend.observe(TREE)


def test_a_pass_says_that_the_token_is_about_to_end(
    rest_access: Access, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    from emulator.api.slurmrestd.auth import encode_jwt_hs256  # type: ignore[import-untyped]

    file = tmp_path / "old"
    file.write_text(encode_jwt_hs256("root", key="key", now=int(time.time()) - 1500))
    through = site(waldur, tmp_path, {**rest_access, "token_file": str(file)})
    report = passes.sync_members(through)
    (note,) = report.notes
    assert "the token of root ends at" in note and note.endswith(f"renew rest_api.token_file {file}")
    (entry,) = last(through.state_dir, through.offering.uuid, report.mode)
    assert entry["notes"] == [note]


# Periodic settings -----------------------------------------------------------------------------------


def send(through: Site, waldur: SimulatedWaldur, **settings: Any) -> None:
    """A message of a policy, as the task handles it: what fails is reported as well."""
    resource = waldur.seed.resource_uuids[0]
    waldur.site.change("resources", resource, backend_id=ACCOUNT)
    document = {
        "action": "apply_periodic_settings",
        "backend_id": ACCOUNT,
        "policy_uuid": waldur.site.add_policy(period=2),
        "resource_uuid": resource,
        "settings": settings,
        "timestamp": "2026-01-01T00:10:02",
    }
    try:
        periodic_limits.run(through, document)
    except PlanRefused as error:
        periodic_limits.report_failure(
            through.offering, through.state_dir, document, error, client=through.client
        )


def results(waldur: SimulatedWaldur) -> list[tuple[bool, str, int]]:
    return [(r.success, r.mode, len(r.commands_executed)) for r in waldur.store.command_results]


LIMITS = {"limit_type": "GrpTRESMins", "grp_tres_mins": {"cpu": 600, "gpu": 6}}


@EVERY_SLURMRESTD
def test_periodic_settings_are_kept_and_a_reset_is_refused_whole(
    rest_access: Access, on_rest: Connect, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    made(on_rest, ACCOUNT)
    through = site(waldur, tmp_path, rest_access, periodic_limits={"enabled": True}, limit_cuts="allow")
    send(through, waldur, fairshare=7, reset_raw_usage=True, **LIMITS)
    assert results(waldur) == [(False, "production", 0)]
    assert "cannot reset raw usage" in waldur.store.command_results[0].error_message
    send(through, waldur, fairshare=52, **LIMITS)
    send(through, waldur, fairshare=52, **LIMITS)
    assert results(waldur)[1:] == [(True, "production", 2), (True, "production", 0)]
    observed = through.backend.observe(TREE).accounts[ACCOUNT]
    assert observed.limits == {"cpu": 600, "gres/gpu": 6}


def test_the_emulator_takes_them_instead_and_the_cluster_keeps_its_own(
    rest_access: Access, waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = str(free_ports(1)[0])
    emulator_rest.state_of(tmp_path, monkeypatch)
    limits = {"enabled": True, "emulator_mode": True, "emulator_base_url": f"http://127.0.0.1:{port}"}
    through = site(waldur, tmp_path, rest_access, periodic_limits=limits)
    before = through.backend.observe(TREE)
    with emulator_rest.serving("control", port):
        send(through, waldur, fairshare=52, reset_raw_usage=True, **LIMITS)
        send(through, waldur, fairshare=52, **LIMITS)
        assert results(waldur) == [(True, "emulator", 3), (True, "emulator", 0)]
        keeper = through.backend.periodic  # type: ignore[attr-defined]
        kept = ObservedSettings(52, {LimitType.GRP_TRES_MINS: {"cpu": 600, "gres/gpu": 6}})
        assert keeper.state(ACCOUNT) == kept
    commands = waldur.store.command_results[0].commands_executed
    assert commands[0].startswith(f"POST http://127.0.0.1:{port}/api/apply-periodic-settings")
    assert through.backend.observe(TREE) == before
    with pytest.raises(SiteAgentError, match="emulator_base_url") as raised:
        send(through, waldur, fairshare=1)
    assert raised.value.retryable


@BUT_24_11
def test_partitions_and_qos_of_members_are_kept_but_for_the_association_of_all_partitions(
    on_rest: Connect,
) -> None:
    backend = on_rest(qos_enforcement_enabled=True, enforce_offering_partitions=True)
    made(on_rest, "a_lines", "nina", "nils")
    names = backend.observe(Scope(frozenset(), names=frozenset({Part.QOS, Part.PARTITIONS})))
    assert "normal" in names.qos
    first, second = sorted(names.partitions)[:2]
    done = backend.apply([
        AddMember(account="a_lines", user="nina", partitions=(first, second)),
        CreateQos(account="a_lines_fast"),
    ])  # fmt: skip
    assert [outcome.error for outcome in done] == [None, None]
    wanted = MemberQos(frozenset({"a_lines_fast", "normal"}), "a_lines_fast")
    change = SetMemberQos(
        account="a_lines", user="nina", after=("a_lines_fast", "normal"), default="a_lines_fast"
    )
    keep = KeepDefaultAccount(account="a_lines", user="nina")
    assert [outcome.error for outcome in backend.apply([change, keep])] == [None, None]
    seen = backend.observe(TREE)
    assert {row.partition for row in seen.rows_of("a_lines", "nina")} == {"", first, second}
    assert {seen.member_qos[row] for row in seen.rows_of("a_lines", "nina")} == {wanted}
    assert {seen.member_qos[row].names for row in seen.rows_of("a_lines", "nils")} == {frozenset({"normal"})}
    removal = [RemovePartition(account="a_lines", user="nina", partition=name) for name in (first, "")]
    errors = {outcome.action: outcome.error for outcome in backend.apply(removal)}
    assert errors[removal[0]] is None
    assert isinstance(errors[removal[1]], PlanRefused)
    assert "sacctmgr delete user where name=nina account=a_lines cluster=" in str(errors[removal[1]])
    left = backend.observe(TREE)
    assert {row.partition for row in left.rows_of("a_lines", "nina")} == {"", second}
    assert {row.partition for row in left.rows_of("a_lines", "nils")} == {""}


@BUT_24_11
def test_members_get_the_partitions_and_the_qos_of_now_and_are_in_step(
    rest_access: Access, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    """The QoS that the order names is the account's as well: whose it is is unknown, and nothing is written."""
    through = site(
        waldur, tmp_path, rest_access,
        qos_enforcement_enabled=True, enforce_offering_qos=True, enforce_offering_partitions=True,
    )  # fmt: skip
    first, second = sorted(
        through.backend.observe(Scope(frozenset(), names=frozenset({Part.PARTITIONS}))).partitions
    )[:2]
    offering = waldur.store.offerings[waldur.seed.offering_uuid]
    offering.partitions = [first]
    before = set(through.backend.observe(TREE).accounts)
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "Rows", limits={"cpu": 10, "mem": 2})
    assert [o.result for o in passes.process_orders(through).orders] == [Result.DONE]
    (name,) = [new for new in set(through.backend.observe(TREE).accounts) - before if new.startswith("a_")]
    resource = waldur.order(order).resource_uuid
    for partition, qos in ((first, ""), (second, "normal")):
        offering.partitions = [partition]
        waldur.site.change("resources", resource, attributes={"qos": qos} if qos else {})
        through.cache.offering = None
        for _ in range(3):
            report = passes.sync_members(through)
            assert report.error is None
            mine = [o for o in report.outcomes if o.action.ids().get("account") == name]
            assert [o for o in mine if o.error] == []
        assert [o.action.line() for o in mine if o.action.where == "cluster"] == []
        rows = [row for row in through.backend.observe(TREE).associations if row.account == name]
        assert len(rows) == 2
        assert {row.partition for row in rows} == {partition}
