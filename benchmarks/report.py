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
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import site as sites
from agent.run.usage import mode as report
from benchmarks.parts import Parts
from rig import job_rows
from rig.processes import REPOSITORY
from rig.reports import ReportsOnSlurm, scenario
from rig.site import settings_of
from simulator.server.waldur import SimulatedWaldur

MONTH = Month(2026, 5)
RESOURCES, USERS = 200, 6
JOBS_A_YEAR, JOBS_A_MONTH = 100_000, 100_000
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
    """One report in a process of its own. `seconds` is the pass, `whole_s` the process from start to end."""

    seconds: float
    whole_s: float
    peak_mib: float
    results: Mapping[str, int]
    in_step: int
    commands: int
    gets: int
    posts: int

    def line(self) -> str:
        return (
            f"{self.seconds:.1f} s ({self.whole_s:.1f} s with its start), {self.peak_mib:.0f} MiB at most, "
            f"{self.commands} processes, {self.gets} GETs, {self.posts} POSTs"
        )


def run(parts: Parts) -> Iterator[str]:
    yield from _year(parts)
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
        bare_s = _bare(parts)
        yield f"bare sacct and sacctmgr over {RESOURCES} accounts, {JOBS_A_YEAR:,} jobs a year: {bare_s:.1f} s"
        yield from _passes(site, f"{RESOURCES} accounts, {JOBS_A_YEAR:,} jobs a year")


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


def _bare(parts: Parts) -> float:
    """Measure the same commands run by hand."""
    started_s = time.monotonic()
    parts.slurm.ask("sacctmgr", "-nP", "show", "assoc", "format=account,user")
    period = ("-S", str(MONTH.first_day), "-E", str(MONTH.next.first_day))
    parts.slurm.ask(
        "sacct", "-aXDnP", "--noconvert", *period, "-o", "Account,User,ReqTRES,ElapsedRaw", timeout_s=300
    )
    return time.monotonic() - started_s


@contextmanager
def _site(parts: Parts) -> Iterator[ReportsOnSlurm]:
    parts.slurm.reset()
    with SimulatedWaldur(scenario=scenario(RESOURCES)) as waldur:
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
    found = report.run_pass(site, clock=lambda: datetime.fromisoformat(moment))
    assert found.error is None, found.error
    # Not getrusage: what a child of a big process had at most begins with the size of that process.
    peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
    requests = found.effort.requests
    posts = sum(count for kind, count in requests.items() if kind.startswith("POST"))
    print(
        json.dumps(
            {
                "seconds": found.effort.seconds,
                "peak_mib": int(peak) / 1024,
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
