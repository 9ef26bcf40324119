# SPDX-License-Identifier: MIT
"""Reports over HTTP to a simulated Waldur: from the real slurmdbd, and from a sacct that only prints, ever more.

`python -m benchmarks.report CONFIG MOMENT` is one report in a process of its own, as of a moment in time; it prints
its figures as JSON.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import passes
from agent.run import site as sites
from benchmarks.parts import Parts
from rig import job_rows, large_tree
from rig.processes import REPOSITORY, peak_kib
from rig.reports import ReportsOnSlurm, scenario
from rig.site import settings_of
from simulator.server.waldur import SimulatedWaldur

MONTH = Month(2026, 5)
RESOURCES, USERS = 200, 6
JOBS_A_YEAR, JOBS_A_MONTH = 100_000, 100_000
LARGE_RESOURCES, LARGE_JOBS, NEW_JOBS = 5_000, 1_000_000, 1_000
HALF_HOUR = timedelta(minutes=30)
LINES = (10_000, 100_000, 1_000_000)

# The lines of a month: so many jobs of a_<n>, in tens of thousands.
SACCT = """\
#!{python} -SE
import sys
count = {count} if "--starttime=2026-05-01T00:00:00" in sys.argv else 0
names = {names!r}
users = {users!r}
lines = [
    names[n % len(names)] + "|" + users[names[n % len(names)]][n % {each}]
    + f"|billing=4,cpu=4,gres/gpu=1,mem={{n % 50 * 1000}}M,node=1|COMPLETED|{{n % 7000}}|00:00:00"
    + f"|{noon}|{noon}|{{n + 1}}\\n"
    for n in range(10000)
]
for _ in range(count // len(lines)):
    sys.stdout.write("".join(lines))
"""
NOON_OF_2_MAY = 1777723200


@dataclass(frozen=True)
class Measured:
    """One report in a process of its own. `seconds` is the pass, `whole_s` the process from start to end, `cpu_s` what
    that process computed itself, without the commands it waited for.
    """

    seconds: float
    cpu_s: float
    whole_s: float
    peak_mib: float
    results: Mapping[str, int]
    in_step: int
    commands: int
    gets: int
    posts: int

    def line(self) -> str:
        return (
            f"{self.seconds:.1f} s ({self.whole_s:.1f} s with its start, {self.cpu_s:.1f} s of its own CPU), "
            f"{self.peak_mib:.0f} MiB at most, "
            f"{self.commands} processes, {self.gets} GETs, {self.posts} POSTs"
        )


def run(parts: Parts) -> Iterator[str]:
    yield from _year(parts)
    yield from _large(parts)
    with _site(parts) as site:
        job_rows.fill(parts.slurm, site.members(USERS), JOBS_A_MONTH, [MONTH])
        yield from _passes(site, f"{RESOURCES} accounts, {JOBS_A_MONTH:,} jobs in the month")
    yield from _growth(parts)


def _year(parts: Parts) -> Iterator[str]:
    """Measure with as many jobs as the reference had, of which a twelfth is in the month."""
    months = [MONTH]
    while len(months) < 12:
        months.append(months[-1].previous)
    with _site(parts) as site:
        job_rows.fill(parts.slurm, site.members(USERS), JOBS_A_YEAR, months)
        bare_s = _bare(site)
        yield f"bare sacct and sacctmgr over {RESOURCES} accounts, {JOBS_A_YEAR:,} jobs a year: {bare_s:.1f} s"
        yield from _passes(site, f"{RESOURCES} accounts, {JOBS_A_YEAR:,} jobs a year")


def _large(parts: Parts) -> Iterator[str]:
    """Measure a cluster of many allocations, at the end of a month of many jobs."""
    with _site(parts, LARGE_RESOURCES) as site:
        members = site.members(USERS)
        large_tree.add(
            parts.slurm, (large_tree.Account(name, users=users) for name, users in members.items())
        )
        yield from large(site, members)


def large(site: ReportsOnSlurm, members: Mapping[str, list[str]], jobs: int = LARGE_JOBS) -> Iterator[str]:
    """Measure reports at noon of the month's last day, of accounts without jobs so far."""
    site.at(datetime(MONTH.year, MONTH.month, (MONTH.next.first_day - timedelta(days=1)).day, 12, tzinfo=UTC))
    rows = (
        row for row in job_rows.random_jobs(members, MONTH, jobs) if row.end is None or row.end <= site.now
    )
    if jobs:
        started_s = time.monotonic()
        count = job_rows.add(site.slurm, rows)
        yield f"{count:,} jobs put into slurmdbd: {time.monotonic() - started_s:.0f} s"
    what = f"{len(members):,} accounts with a month of {LARGE_JOBS:,} jobs"
    yield f"{what}, bare sacct: {_bare(site):.1f} s"
    first = _report(site)
    yield f"{what}, first report, all of them sent: {first.line()}"
    site.at(site.now + HALF_HOUR)
    second = _report(site)
    assert (second.in_step, second.posts) == (len(members), 0), second
    yield f"{what}, second report, nothing new: {second.line()}"
    news = (
        replace(row, start=site.now, end=site.now + timedelta(seconds=60))
        for row in job_rows.random_jobs(members, MONTH, NEW_JOBS, seed=2)
    )
    job_rows.add(site.slurm, news)
    site.at(site.now + HALF_HOUR)
    yield f"{what}, third report, {NEW_JOBS:,} new jobs: {_report(site).line()}"
    yield f"{what}, bare sacct of what the last two read: {_bare(site, site.now - 7 * HALF_HOUR * 2):.1f} s"


def _passes(site: ReportsOnSlurm, what: str) -> Iterator[str]:
    first = _report(site)
    assert first.results == {"done": RESOURCES}, first
    yield f"{what}, all of them sent: {first.line()}"
    second = _report(site)
    assert (second.in_step, second.posts) == (RESOURCES, 0), second
    yield f"{what}, nothing new: {second.line()}"


def _growth(parts: Parts) -> Iterator[str]:
    with _site(parts) as site:
        members = site.members(USERS)
        job_rows.add_accounts(parts.slurm, members)
        program = _stand_in_folder(parts, site)
        for count in LINES:
            _write(program, count, members)
            _report(site)
            idle = _report(site)
            yield f"{count:,} lines of a sacct that prints them, nothing new: {idle.line()}"


def _stand_in_folder(parts: Parts, site: ReportsOnSlurm) -> Path:
    """Make a folder with the real sacctmgr and a sacct of ours, in the site's configuration."""
    folder = parts.new_folder()
    for name in ("sacctmgr", "squeue", "scancel", "scontrol", "sreport"):
        (folder / name).symlink_to(parts.slurm.bin_path / name)
    site.path.write_text(site.path.read_text().replace(str(parts.slurm.bin_path), str(folder)))
    return folder / "sacct"


def _write(program: Path, count: int, members: Mapping[str, list[str]]) -> None:
    text = SACCT.format(
        python=sys.executable,
        count=count,
        names=list(members),
        users=dict(members),
        each=USERS,
        noon=NOON_OF_2_MAY,
    )
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def _bare(site: ReportsOnSlurm, since: datetime | None = None) -> float:
    """Measure the same commands run by hand."""
    started_s = time.monotonic()
    site.slurm.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user")
    start = f"{since:%Y-%m-%dT%H:%M:%S}" if since else str(MONTH.first_day)
    period = ("-S", start, "-E", str(MONTH.next.first_day))
    site.slurm.ask(
        "sacct", "-aXDnP", "--noconvert", *period, "-o", "Account,User,ReqTRES,ElapsedRaw", timeout_s=300
    )
    return time.monotonic() - started_s


@contextmanager
def _site(parts: Parts, resources: int = RESOURCES) -> Iterator[ReportsOnSlurm]:
    parts.slurm.reset()
    with SimulatedWaldur(scenario=scenario(resources)) as waldur:
        yield ReportsOnSlurm(parts.slurm, waldur, parts.new_folder(), MONTH)


def _report(site: ReportsOnSlurm) -> Measured:
    command = [sys.executable, "-m", "benchmarks.report", str(site.path), site.now.isoformat()]
    started_s = time.monotonic()
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    return Measured(whole_s=time.monotonic() - started_s, **json.loads(done.stdout))


def main(config: str, moment: str) -> None:
    settings = settings_of(Path(config))
    site = sites.connect(settings, settings.offerings[0], Mode.REPORT)
    found = passes.report_usage(site, clock=lambda: datetime.fromisoformat(moment))
    assert found.error is None, found.error
    requests = found.effort.requests
    posts = sum(count for kind, count in requests.items() if kind.startswith("POST"))
    print(
        json.dumps(
            {
                "seconds": found.effort.seconds,
                "cpu_s": time.process_time(),
                "peak_mib": peak_kib() / 1024,
                "results": found.counted(),
                "in_step": found.in_step,
                "commands": found.effort.commands.total(),
                "gets": requests.total() - posts,
                "posts": posts,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
