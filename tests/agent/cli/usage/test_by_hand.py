# SPDX-License-Identifier: MIT
"""The sum by hand that operators find in the documents: with every awk of this host it is what the agent counts."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from agent.core.periods import Month
from agent.core.usage import UsageQuery, UsageSource
from backends.slurm.tally import Tally
from tests import REPOSITORY

USAGE = REPOSITORY / "docs" / "usage.md"
RECIPE = USAGE.read_text().partition("... | ")[2].partition("\n```")[0]
AWKS = [name for name in ("awk", "mawk", "gawk", "busybox") if shutil.which(name)]
# As sacct prints them for one account; some amounts have other units than --noconvert gives.
LINES = (
    "1|ann|COMPLETED|billing=2,cpu=2,gres/gpu:a100=1,gres/gpu=1,mem=1000M,node=1|3600|00:00:00",
    "2|ann|COMPLETED|cpu=1,mem=2G|60|00:20:05",
    "3|bob|TIMEOUT|cpu=4,mem=5000K,bb/cray=3G|600|3-01:00:09",
    "4|bob|CANCELLED by 0|cpu=2K,mem=7|10|00:00:01",
    "5|bob|COMPLETED|gres/gpu=16,mem=1T|2592000|00:00:00",
    "6|bob|PENDING||0|00:00:00",
)
COUNTED = ("cpu", "mem", "gres/gpu", "gres/gpu:a100", "bb/cray", "node", "fpga")


def counted(source: UsageSource) -> dict[str, int]:
    tally = Tally(UsageQuery(Month(2026, 5), "UTC", source), (0, 4_000_000_000))
    parts = (line.split("|") for line in LINES)
    tally.add(
        f"a|{user}|{tres}|{state}|{ran}|{held}|9|9|{job}" for job, user, state, tres, ran, held in parts
    )
    return dict(tally.usage().accounts["a"].total)


@pytest.mark.parametrize("awk", AWKS)
@pytest.mark.parametrize("source", UsageSource)
def test_the_sum_by_hand_is_what_counts(awk: str, source: UsageSource) -> None:
    expected = counted(source)
    found = {}
    program = "busybox awk" if awk == "busybox" else awk
    for tres in COUNTED:
        recipe = RECIPE.replace("tres=cpu", f"tres={tres}").replace("source=requested", f"source={source}")
        done = subprocess.run(
            ["sh", "-c", recipe.replace("awk", program, 1)],
            input="".join(f"{line}\n" for line in LINES),
            capture_output=True,
            text=True,
            check=True,
        )
        found[tres] = int(done.stdout)
    assert found == {tres: expected.get(tres, 0) for tres in COUNTED}
