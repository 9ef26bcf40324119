# SPDX-License-Identifier: MIT
"""Proves the real parts themselves: servers answer, jobs run, resets clean, outages are outages."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta
from pathlib import Path

import pymysql
import pytest

from agent.core.periods import Month
from rig import job_rows
from rig.job_rows import JobRow
from rig.parts import REDIS_PROGRAMS, SLURM_SUITES, require
from rig.processes import RealPartError, connections, wait_until
from rig.redis_server import RedisServer
from rig.slurm_cluster import WAITING_WRITES, SlurmCluster
from rig.slurm_reset import SECONDS_BETWEEN_REPORTS
from tests import REPOSITORY

ORPHAN_SCRIPT = """
import os, signal, sys
from pathlib import Path
from rig.slurm_cluster import SlurmCluster
from rig.slurm_reset import SECONDS_BETWEEN_REPORTS
cluster = SlurmCluster(Path(sys.argv[1]))
cluster.start()
cluster.ask("sbatch", "-t", "60", "--wrap", "sleep 987")
while cluster.ask("squeue", "--noheader", "--format=%T").strip() != "RUNNING":
    pass
servers = ("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd")
print(" ".join(str(cluster.servers.pid(name)) for name in servers))
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def account_names(slurm: SlurmCluster) -> set[str]:
    return set(slurm.ask("sacctmgr", "-nP", "show", "association", "format=account").split())


def mentions(text: str) -> list[str]:
    """Command lines of living processes that hold a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


@pytest.mark.every_slurm
def test_node_is_idle_and_cluster_is_registered(slurm: SlurmCluster) -> None:
    assert slurm.ask("sinfo", "-h", "-p", "main", "-o", "%t %c %G").split() == ["idle", "16", "gpu:4"]
    assert slurm.ask("sacctmgr", "-nP", "list", "cluster", "format=cluster").split() == ["test"]
    assert "gres|gpu" in slurm.ask("sacctmgr", "-nP", "list", "tres")


@pytest.mark.every_slurm
def test_job_runs_under_an_association_and_is_accounted(slurm: SlurmCluster) -> None:
    slurm.change("add account physics", "add user root account=physics")
    job = slurm.ask("sbatch", "--parsable", "-A", "physics", "--gres=gpu:2", "-n2", "--wrap", "true").strip()

    def completed() -> bool:
        return "COMPLETED" in slurm.ask("sacct", "-nPX", "-j", job, "-o", "State")

    wait_until("the job's end in sacct", completed, pause_s=0.1)
    assert "gres/gpu=2" in slurm.ask("sacct", "-nPX", "-j", job, "-o", "AllocTRES")


def test_job_without_association_is_refused(slurm: SlurmCluster) -> None:
    slurm.ask("sacctmgr", "-i", "add", "account", "physics")
    refused = slurm.run("sbatch", "-A", "physics", "--wrap", "true")
    assert refused.returncode == 1
    assert "Invalid account" in refused.stderr


@pytest.mark.every_slurm
def test_reset_removes_everything(slurm: SlurmCluster) -> None:
    slurm.change(
        "add account customer",
        "add account project parent=customer",
        "add user ann,bob,root account=project",
        "add qos fast",
        "modify user root set DefaultAccount=project",
        "modify account root set GrpTRESMins=cpu=5000 GrpSubmitJobs=0",
        "modify account root set GrpSubmitJobs=-1",
    )
    slurm.ask("sbatch", "-A", "project", "--wrap", "sleep 100")
    slurm.reset()
    assert account_names(slurm) == {"root"}
    assert slurm.ask("squeue", "-h") == ""
    assert slurm.ask("sacct", "-nPX", "-a", "-A", "project") == ""


@pytest.mark.every_slurm
def test_a_reset_waits_for_a_command_that_was_left_at_work(slurm: SlurmCluster) -> None:
    """As by a worker that is killed."""
    commands = [f"add account left{number}\nadd user ann account=left{number}\n" for number in range(20)]
    slurm.freeze_slurmdbd()
    argv = [str(slurm.bin_path / "sacctmgr"), "-i"]
    with subprocess.Popen(argv, env=slurm.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as left:
        assert left.stdin is not None
        left.stdin.write("".join(commands).encode())
        left.stdin.close()
        wait_until("its connection", lambda: len(connections(slurm.site.slurmdbd_port)) > 1, left)
        slurm.reset()
        assert left.poll() == 0
    assert account_names(slurm) == {"root"}


def test_a_statement_that_loses_a_deadlock_is_run_again_and_those_before_it_are_not(
    slurm: SlurmCluster,
) -> None:
    """InnoDB rolls back the transaction that has changed fewer rows."""
    slurm.change(*(f"add qos q{number}" for number in range(3)))
    other = pymysql.connect(unix_socket=str(slurm.site.database), user="root", database="slurm_acct_db")
    with ThreadPoolExecutor(1) as pool, other, other.cursor() as cursor:

        def waits() -> bool:
            return cursor.execute(WAITING_WRITES) == 1

        for name in ("q1", "q2"):
            cursor.execute(f"UPDATE qos_table SET description='other' WHERE name = '{name}'")
        # slurmdbd's key of this table is its name: a row is found, and locked, without a look at others.
        ours = pool.submit(
            slurm.sql,
            "UPDATE qos_table SET priority = priority + 1 WHERE name='q0'",
            "UPDATE qos_table SET priority = priority + 1 WHERE name IN ('q0', 'q1')",
            "SELECT name, description, priority FROM qos_table WHERE name LIKE 'q_' ORDER BY name",
        )
        # InnoDB looks again only after 0.1 s without a question.
        wait_until("a statement that waits", waits, pause_s=0.2)
        cursor.execute("UPDATE qos_table SET description='other' WHERE name = 'q0'")
        other.commit()
        assert ours.result() == "q0\tother\t2\nq1\tother\t1\nq2\tother\t0\n"
    _, _, deadlock = slurm.sql("SHOW ENGINE INNODB STATUS").partition("LATEST DETECTED DEADLOCK")
    assert "SET priority = priority + 1 WHERE name IN ('q0', 'q1')" in deadlock


@pytest.mark.every_slurm
def test_a_reset_puts_back_what_no_command_can(slurm: SlurmCluster) -> None:
    """The test that comes after such damage fails, and those after it do not."""
    slurm.change("add account project", "add user root account=project")
    slurm.sql("UPDATE test_assoc_table SET deleted=1 WHERE acct='root' AND user='root'")
    damage = (
        r"deleted(.|\n)* of root:\n1\t\t0(.|\n)*\n2\troot\t1"
        r"(.|\n)*writes of the last minute:(.|\n)*'project'(.|\n)*the last deadlock:"
    )
    if slurm.root is None:
        with pytest.warns(UserWarning, match=damage):
            slurm.reset()
    else:
        with pytest.raises(RealPartError, match=damage):
            slurm.reset()
    assert slurm.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user").split() == [
        "root|",
        "root|root",
    ]


@pytest.mark.every_slurm
def test_a_reset_closes_gaps_between_the_places_of_associations(slurm: SlurmCluster) -> None:
    if slurm.root is not None:
        return  # it has no places
    places = "SELECT user, lft, rgt FROM test_assoc_table"
    before = slurm.sql(places)
    slurm.sql("UPDATE test_assoc_table SET lft = lft + 10 * (user='root'), rgt = rgt + 10")
    with pytest.warns(UserWarning, match="numbering of the associations is off by 10"):
        slurm.reset()
    assert slurm.sql(places) == before


@pytest.mark.every_slurm
def test_no_job_comes_back_after_a_reset(slurm: SlurmCluster) -> None:
    slurm.change("add account project", "add user root account=project")
    slurm.ask("sbatch", "-A", "project", "--wrap", "sleep 100")
    slurm.reset()
    time.sleep(SECONDS_BETWEEN_REPORTS + 1)
    assert slurm.ask("sacct", "-nPX", "-a", "-A", "project") == ""


def test_reset_forgets_generated_jobs_even_those_that_never_end(slurm: SlurmCluster) -> None:
    before = slurm.sql("SELECT * FROM test_event_table")
    job_rows.add_accounts(slurm, {"physics": ["ann"]})
    start = Month(2026, 5).start(UTC)
    rows = [JobRow("physics", "ann", start, end) for end in (start + timedelta(hours=1), None)]
    assert job_rows.add(slurm, rows) == 2
    job_rows.roll_up(slurm, Month(2026, 5))
    assert len(slurm.ask("sacct", "-anX", "-S", "2026-05-01", "-E", "2026-06-01").splitlines()) == 2
    assert slurm.sql("SELECT * FROM test_usage_month_table")
    slurm.reset()
    assert slurm.ask("sacct", "-anX", "-S", "2026-05-01", "-E", "2026-06-01") == ""
    assert slurm.sql("SELECT * FROM test_usage_month_table") == ""
    assert slurm.sql("SELECT * FROM test_event_table") == before


@pytest.mark.every_slurm
def test_a_job_is_submitted_although_slurmctld_lost_the_change_that_made_its_account(
    slurm: SlurmCluster,
) -> None:
    """slurmdbd sends each change once, to the port that slurmctld gave (22.05); neither `reconfigure` nor a later
    change brings one back that was lost. Newer releases lose none for a wrong port.
    """
    port = slurm.sql("SELECT control_port FROM cluster_table WHERE name='test'").strip()
    slurm.sql("UPDATE cluster_table SET control_port=1 WHERE name='test'")
    slurm.change("add account project", "add user root account=project")
    slurm.sql(f"UPDATE cluster_table SET control_port={port} WHERE name='test'")
    submit = ("sbatch", "-A", "project", "--wrap", "true")
    if slurm.root:
        slurm.ask(*submit)
        return
    slurm.ask("scontrol", "reconfigure")
    slurm.ask("sacctmgr", "-i", "reconfigure")
    assert "Invalid account" in slurm.run(*submit).stderr
    with pytest.warns(UserWarning, match="Connection refused to test"):
        slurm.ask(*submit)


@pytest.mark.every_slurm
def test_the_end_of_an_outage_has_slurmctld_register_although_slurmdbd_does_not_reach_it(
    slurm: SlurmCluster,
) -> None:
    """slurmdbd asks at the port that the database has, and sets it to 0 where nobody answers."""
    for port in (1, 0):
        slurm.stop_slurmdbd()
        slurm.sql(f"UPDATE cluster_table SET control_port={port} WHERE name='test'")
        slurm.start_slurmdbd()
        ports = slurm.sql("SELECT control_port FROM cluster_table WHERE name='test'")
        assert ports == f"{slurm.site.slurmctld_port}\n"


def test_reset_of_a_clean_cluster_writes_nothing(slurm: SlurmCluster) -> None:
    transactions = slurm.sql("SELECT COUNT(*) FROM txn_table")
    slurm.reset()
    assert slurm.sql("SELECT COUNT(*) FROM txn_table") == transactions


@pytest.mark.every_slurm
def test_slurmdbd_outage_and_return(slurm: SlurmCluster) -> None:
    slurm.stop_slurmdbd()
    refused = slurm.run("sacctmgr", "-nP", "show", "association")
    assert refused.returncode == 1
    assert "Connection refused" in refused.stderr
    slurm.start_slurmdbd()
    assert account_names(slurm) == {"root"}


def test_frozen_slurmdbd_does_not_answer(slurm: SlurmCluster) -> None:
    slurm.freeze_slurmdbd()
    with pytest.raises(subprocess.TimeoutExpired):
        slurm.run("sacctmgr", "-nP", "show", "association", timeout_s=1)
    slurm.resume_slurmdbd()
    assert account_names(slurm) == {"root"}


@pytest.mark.real_part
def test_a_suite_that_has_gone_on_to_another_slurm_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    older, newer = SLURM_SUITES
    require(f"slurm-{older}")
    require(f"slurm-{newer}")
    monkeypatch.setitem(SLURM_SUITES, newer, SLURM_SUITES[older])
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception)) as raised:
        require(f"slurm-{newer}")
    assert f"slurm-{newer}" in str(raised.value)
    assert f"/{SLURM_SUITES[older]} has SLURM {older}." in str(raised.value)


@pytest.mark.real_part
def test_nothing_survives_a_killed_session(tmp_path: Path) -> None:
    require("slurm")
    killed = subprocess.run(
        [sys.executable, "-c", ORPHAN_SCRIPT, str(tmp_path / "slurm")],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    pids = killed.stdout.split()
    assert len(pids) == 5, killed.stderr

    def gone() -> bool:
        return not any(Path("/proc", pid).exists() for pid in pids) and not mentions("sleep 987")

    wait_until("the end of a killed session's servers and jobs", gone)


@pytest.mark.real_part
@pytest.mark.parametrize("kind", ["redis", *REDIS_PROGRAMS])
def test_redis_keeps_data_through_a_crash(tmp_path: Path, kind: str) -> None:
    server = RedisServer(tmp_path / "redis", appendonly=True, kind=kind)
    server.start()
    try:
        server.command("SET answer 42")
        first_pid = server.pid
        server.kill()
        assert not server.answers()
        server.start()
        assert server.pid != first_pid
        assert server.command("GET answer") == b"$2\r\n42\r\n"
    finally:
        server.stop()


def test_redis_of_the_session_is_flushed(redis_server: RedisServer) -> None:
    redis_server.command("SET answer 42")
    redis_server.flush()
    assert redis_server.command("GET answer") == b"$-1\r\n"
