# SPDX-License-Identifier: MIT
"""What was used, as the real SLURM reports it: jobs of every kind, put into its database for months of every kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agent.core.periods import Month
from agent.core.usage import AccountUsage, Usage, UsageQuery, UsageSource
from backends.slurm.backend import SlurmBackend
from backends.slurm.sreport import MonthOpen, ZoneDiffers
from rig import job_rows
from rig.host_zone import set_host_zone
from rig.job_rows import JobRow
from rig.processes import wait_until
from rig.slurm_cluster import SlurmCluster
from tests.backends.conftest import Connect

pytestmark = pytest.mark.every_slurm(one_of=10)

TALLINN, TOKYO = "Europe/Tallinn", "Asia/Tokyo"
ASKED = {"cpu": 2, "mem": 500, "node": 1, "billing": 2}
WHOLE_NODE = {"cpu": 16, "mem": 16_000, "node": 1, "billing": 16, "gres/gpu": 4}
MEMBERS = {
    name: ["ann", "bob"] for name in ("steady", "border", "requeued", "array", "held", "waiting", "gone")
}
H = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# The month of Tallinn begins at 22:00 UTC in winter and at 21:00 in summer, that of Tokyo at 15:00.
BORDERS = (
    (at("2026-02-28T14:00"), at("2026-03-01T02:00")),
    (at("2026-03-29T00:00"), at("2026-03-29T03:00")),
    (at("2026-03-31T20:30"), at("2026-03-31T21:30")),
    (at("2026-02-20T00:00"), at("2026-04-10T00:00")),
    (at("2025-10-25T23:30"), at("2025-10-26T02:30")),
    (at("2025-09-20T00:00"), at("2025-11-10T00:00")),
)


def rows() -> Iterator[JobRow]:
    noon = at("2026-05-05T12:00")
    yield JobRow("steady", "ann", noon, noon + 2 * H, ASKED)
    yield JobRow("steady", "ann", noon, noon + 2 * H, ASKED, state="FAILED")
    yield JobRow("steady", "bob", noon, noon + 3 * H, ASKED, WHOLE_NODE, "TIMEOUT")
    for start, end in BORDERS:
        yield JobRow("border", "ann", start, end, ASKED)
    for number, state in enumerate(("REQUEUED", "NODE_FAIL", "COMPLETED")):
        start = noon + 5 * number * H
        yield JobRow("requeued", "ann", start, start + (number + 1) * H, ASKED, state=state, id=5_000_001)
    for task in range(3):
        number = 6_000_000 if task == 2 else 6_000_001 + task
        yield JobRow("array", "bob", noon, noon + H, ASKED, id=number, array=(6_000_000, task))
    yield JobRow("held", "ann", noon, noon + 4 * H, ASKED, suspended=((noon + H, noon + 2 * H),))
    month_end = at("2026-06-01T00:00")
    yield JobRow(
        "held",
        "bob",
        month_end - 3 * H,
        month_end + 3 * H,
        ASKED,
        suspended=((month_end - H, month_end + 2 * H),),
    )
    yield JobRow("waiting", "ann", None, noon, ASKED, state="CANCELLED", submit=noon - H)
    yield JobRow("waiting", "ann", month_end + H, month_end + 2 * H, ASKED, submit=noon)
    yield JobRow("waiting", "bob", None, None, ASKED, state="PENDING", submit=noon)
    yield JobRow("gone", "bob", noon, noon + H, ASKED)


@pytest.fixture(scope="module")
def slurm_with_jobs(emptied_slurm: SlurmCluster) -> SlurmCluster:
    """The cluster with all rows; the account `gone` is deleted since."""
    job_rows.add_accounts(emptied_slurm, MEMBERS)
    job_rows.add(emptied_slurm, rows())
    emptied_slurm.change(
        # A load makes one of the accounts the default one, which nobody loses from 24.11 on.
        "modify user where name=ann,bob set defaultaccount=steady",
        "remove user where name=ann,bob account=gone",
        "remove account where name=gone",
    )
    return emptied_slurm


@pytest.fixture(scope="module")
def backend(slurm_with_jobs: SlurmCluster, on_slurm: Connect) -> SlurmBackend:
    return on_slurm()


UsageOf = Callable[[UsageQuery], Usage]


@pytest.fixture(scope="module")
def usage_of(backend: SlurmBackend) -> UsageOf:
    """Each month is asked for once: the rows do not change."""
    return cache(backend.usage)


def month(text: str, zone: str = "UTC", source: UsageSource = UsageSource.REQUESTED) -> UsageQuery:
    return UsageQuery(Month.parse(text), zone, source)


def given(text: str, zone: str = "UTC") -> UsageQuery:
    return month(text, zone, UsageSource.ALLOCATED)


def times(tres: Mapping[str, int], seconds: float) -> dict[str, int]:
    return {name: count * int(seconds) for name, count in tres.items()}


def test_jobs_are_summed_by_account_and_user(usage_of: UsageOf) -> None:
    asked = usage_of(month("2026-05")).accounts["steady"]
    assert asked == AccountUsage(
        times(ASKED, 7 * 3600), {"ann": times(ASKED, 4 * 3600), "bob": times(ASKED, 3 * 3600)}
    )


def test_whole_nodes_count_where_what_was_given_counts(usage_of: UsageOf) -> None:
    usage = usage_of(given("2026-05")).accounts["steady"]
    assert usage.users == {"ann": times(ASKED, 4 * 3600), "bob": times(WHOLE_NODE, 3 * 3600)}


@pytest.mark.parametrize(("zone", "name"), [
    *(("UTC", name) for name in ("2025-10", "2026-02", "2026-03")),
    *((TALLINN, name) for name in ("2025-10", "2025-11", "2026-02", "2026-03", "2026-04")),
    *((TOKYO, name) for name in ("2026-02", "2026-03", "2026-04")),
])  # fmt: skip
def test_jobs_over_borders_are_shared_among_the_months_of_the_zone(
    usage_of: UsageOf, name: str, zone: str
) -> None:
    which = Month.parse(name)
    start, end = (m.start(ZoneInfo(zone)).timestamp() for m in (which, which.next))
    shares = [min(end, last.timestamp()) - max(start, first.timestamp()) for first, last in BORDERS]
    expected = times(ASKED, sum(share for share in shares if share > 0))
    assert usage_of(month(name, zone)).accounts["border"].total == expected


MONTHS_IN_HOURS = {
    ("2026-03", "UTC"): 31 * 24,
    ("2026-03", TALLINN): 31 * 24 - 1,
    ("2025-10", TALLINN): 31 * 24 + 1,
    ("2025-10", TOKYO): 31 * 24,
}


@pytest.mark.parametrize(("name", "zone"), MONTHS_IN_HOURS)
def test_a_month_is_as_long_as_its_zone_has_it(usage_of: UsageOf, name: str, zone: str) -> None:
    """Two of the jobs ran all month; the share of the others is counted by hand."""
    others = {("2026-03", "UTC"): 2 + 3 + 1, ("2026-03", TALLINN): 4 + 3 + 0.5}
    others |= {("2025-10", TALLINN): 3, ("2025-10", TOKYO): 3}
    hours = MONTHS_IN_HOURS[name, zone] + others[name, zone]
    assert usage_of(month(name, zone)).accounts["border"].total["node"] == hours * 3600


def test_every_run_of_a_requeued_job_counts(usage_of: UsageOf) -> None:
    assert usage_of(month("2026-05")).accounts["requeued"].total == times(ASKED, 6 * 3600)
    reference = usage_of(replace(month("2026-05"), as_reference=True))
    assert reference.accounts["requeued"].total == times(ASKED, 3 * 3600)


def test_the_reference_loses_a_second_of_what_runs_over_the_months_end(usage_of: UsageOf) -> None:
    ours, theirs = (
        usage_of(replace(month("2026-03"), as_reference=flag)).accounts["border"].total
        for flag in (False, True)
    )
    assert {name: ours[name] - theirs[name] for name in ours} == ASKED


def test_tasks_of_an_array_are_jobs(usage_of: UsageOf) -> None:
    assert usage_of(month("2026-05")).accounts["array"].total == times(ASKED, 3 * 3600)


def test_suspended_time_counts_for_nothing_asked_and_for_all_given_but_cpu(usage_of: UsageOf) -> None:
    asked = usage_of(month("2026-05")).accounts["held"]
    assert asked.users == {"ann": times(ASKED, 3 * 3600), "bob": times(ASKED, 2 * 3600)}
    users = usage_of(given("2026-05")).accounts["held"].users
    kept = {name: count for name, count in ASKED.items() if name != "cpu"}
    assert users["ann"] == {"cpu": 2 * 3 * 3600, **times(kept, 4 * 3600)}
    assert users["bob"] == {"cpu": 2 * 2 * 3600, **times(kept, 3 * 3600)}
    assert usage_of(month("2026-06")).accounts["held"].total == times(ASKED, 3600)


def test_what_never_ran_in_the_month_counts_nothing(usage_of: UsageOf) -> None:
    usage = usage_of(month("2026-05"))
    assert set(usage.accounts["waiting"].total.values()) == {0}
    assert not [job for job in usage.live if job.account == "waiting"]


def test_accounts_that_are_gone_keep_what_they_used(usage_of: UsageOf) -> None:
    assert usage_of(month("2026-05")).accounts["gone"].users == {"bob": times(ASKED, 3600)}


def test_a_month_or_a_cluster_without_jobs_has_no_records(usage_of: UsageOf, on_slurm: Connect) -> None:
    assert usage_of(month("2020-01")).records == 0
    assert on_slurm(cluster_name="nosuch").usage(month("2026-05")).records == 0


def test_without_a_name_it_is_the_cluster_of_slurm_conf(usage_of: UsageOf, on_slurm: Connect) -> None:
    unnamed = on_slurm(cluster_name="")
    assert unnamed.usage(month("2026-05")) == usage_of(month("2026-05"))


def test_single_jobs_are_read_run_by_run(backend: SlurmBackend) -> None:
    found = backend.job_uses(month("2026-05"), ["5000001", "6000000", "77"])
    runs = [job for job in found if job.id == "5000001"]
    assert sorted(job.seconds for job in runs) == [3600, 2 * 3600, 3 * 3600]
    assert len({job.run for job in runs}) == 3
    (last_task,) = (job for job in found if job not in runs)
    assert (last_task.id, last_task.seconds, last_task.user) == ("6000000", 3600, "bob")


def test_the_command_for_one_account_shows_the_jobs_that_make_the_figure(
    slurm_with_jobs: SlurmCluster, backend: SlurmBackend, usage_of: UsageOf
) -> None:
    line = backend.usage_command(month("2026-03", TALLINN), "border")
    rows = slurm_with_jobs.ask("sh", "-c", line).splitlines()
    assert {row.split("|")[1] for row in rows} == {"ann"}
    seconds = sum(int(row.split("|")[4]) for row in rows)
    assert seconds == usage_of(month("2026-03", TALLINN)).accounts["border"].total["node"]


# Jobs that really run -----------------------------------------------------------------------------------

NOW = UsageQuery(Month.of(datetime.now(UTC)))


def so_far(backend: SlurmBackend, source: UsageSource = UsageSource.REQUESTED) -> Mapping[str, int]:
    """What root's jobs in the account `steady` count now."""
    found = Counter[str]()
    found.update(backend.usage(replace(NOW, source=source)).accounts.get("steady", AccountUsage()).total)
    return found


def test_jobs_that_run_count_to_now_and_are_named(
    slurm_with_jobs: SlurmCluster, backend: SlurmBackend
) -> None:
    slurm = slurm_with_jobs
    slurm.ask("sacctmgr", "-i", "add", "user", "name=root", "account=steady")
    options = ("--parsable", "-A", "steady", "-t", "60", "-o", "/dev/null", "--chdir=/")
    slurm.ask("sbatch", *options, "--exclusive", "--wrap", "sleep 1")
    wait_until("the end of a whole node", lambda: so_far(backend)["cpu"] and not backend.usage(NOW).live)
    whole = so_far(backend)["cpu"]
    assert so_far(backend, UsageSource.ALLOCATED)["cpu"] == 16 * whole

    pair = slurm.ask("sbatch", *options, "-n2", "--gres=gpu:1", "--wrap", "sleep 900").strip()
    single = slurm.ask("sbatch", *options, "--requeue", "--array=1", "--wrap", "sleep 900").strip()
    wait_until("both jobs", lambda: {job.id for job in backend.usage(NOW).live} == {pair, single})
    wait_until("seconds of theirs", lambda: so_far(backend)["cpu"] >= whole + 3)
    usage = backend.usage(NOW)
    live = {job.id: job for job in usage.live}
    total = usage.accounts["steady"].users["root"]
    assert total["cpu"] == whole + sum(job.counts["cpu"] for job in usage.live)
    assert (total["gres/gpu"], live[pair].state) == (live[pair].seconds, "RUNNING")

    slurm.ask("scontrol", "requeue", single)
    slurm.ask("scontrol", "suspend", pair)
    # slurmdbd hears of both in slurmctld's own time.
    wait_until("requeue and suspension", lambda: (
        {job.id: job.state for job in backend.usage(NOW).live} == {pair: "SUSPENDED"}
    ))  # fmt: skip
    wait_until("suspended time", lambda: (
        so_far(backend, UsageSource.ALLOCATED)["gres/gpu"] > so_far(backend)["gres/gpu"]
    ))  # fmt: skip
    assert so_far(backend)["cpu"] >= total["cpu"], "what the requeued job used before still counts"
    slurm.ask("scancel", pair, single)
    wait_until("the end of all", lambda: not backend.usage(NOW).live)


# Other counts of the same jobs ------------------------------------------------------------------------


def counted(usage: Usage) -> dict[str, dict[str, dict[str, int]]]:
    """Counts above zero by account and user."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for account, of_account in usage.accounts.items():
        for user, counts in of_account.users.items():
            some = {name: count for name, count in counts.items() if count}
            if some:
                found.setdefault(account, {})[user] = some
    return found


@pytest.fixture(scope="module")
def busy(slurm_with_jobs: SlurmCluster) -> SlurmCluster:
    """Hundreds of jobs more, in two months."""
    members = {"busy": ["ann", "bob", "eve"], "big": ["bob", "tom"]}
    job_rows.add_accounts(slurm_with_jobs, members)
    for which in (Month(2026, 3), Month(2026, 5)):
        job_rows.add(slurm_with_jobs, job_rows.random_jobs(members, which, 500))
    return slurm_with_jobs


@pytest.mark.parametrize("zone", ["UTC", TALLINN, TOKYO])
def test_jobs_are_cut_as_sacct_would_cut_them(busy: SlurmCluster, backend: SlurmBackend, zone: str) -> None:
    flags = (
        "-aXDnPT --noconvert -S 2026-03-01T00:00:00 -E 2026-04-01T00:00:00 -o Account,ElapsedRaw,Suspended"
    )
    seconds: Counter[str] = Counter()
    for row in busy.ask("env", f"TZ={zone}", "sacct", *flags.split()).splitlines():
        account, elapsed, _ = row.split("|")
        seconds[account] += int(elapsed)
    usage = backend.usage(month("2026-03", zone))
    assert {name: account.total.get("node", 0) for name, account in usage.accounts.items()} == seconds


@pytest.fixture
def slurmdbd_in(
    busy: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Moves slurmdbd, and what `date` says of this host, into a zone."""
    before = busy.servers.env

    def restart(env: Mapping[str, str]) -> None:
        busy.stop_slurmdbd()
        # Or else it sums up everything since the first job when it starts.
        hour = int(datetime.now(UTC).timestamp()) // 3600 * 3600
        busy.sql(
            "DELETE FROM test_last_ran_table",
            f"INSERT INTO test_last_ran_table VALUES ({hour}, {hour}, {hour})",
        )
        busy.servers.env = env
        busy.start_slurmdbd()

    def move(zone: str) -> None:
        restart({**before, "TZ": zone})
        set_host_zone(zone, tmp_path, monkeypatch)

    yield move
    restart(before)


@pytest.mark.parametrize(("zone", "name"), [("UTC", "2026-05"), (TALLINN, "2026-03")])
def test_alloctres_is_what_the_rollup_has(
    busy: SlurmCluster, slurmdbd_in: Callable[[str], None], on_slurm: Connect, zone: str, name: str
) -> None:
    slurmdbd_in(zone)
    backend, closed = on_slurm(), month(name, zone)
    # At a full hour slurmdbd does the same by itself.
    job_rows.roll_up(busy, closed.month, zone)
    ours, theirs = backend.usage(given(name, zone)), backend.rolled_up(closed)
    assert counted(theirs) == counted(ours)
    assert {"busy", "big"} < set(counted(theirs))
    assert (theirs.query, theirs.scale) == (given(name, zone), ours.scale)


def test_months_of_other_zones_are_not_asked_for(busy: SlurmCluster, backend: SlurmBackend) -> None:
    own = datetime.now().astimezone().utcoffset()
    other = TOKYO if own != timedelta(hours=9) else TALLINN
    with pytest.raises(ZoneDiffers, match=f"2026-03 in {other} is no month of the cluster's own zone"):
        backend.rolled_up(month("2026-03", other))


def test_an_open_month_has_no_summary_and_none_is_asked_for(backend: SlurmBackend) -> None:
    before = backend.executed.total()
    with pytest.raises(MonthOpen):
        backend.rolled_up(UsageQuery(Month.of(datetime.now(UTC))))
    assert backend.executed.total() == before
