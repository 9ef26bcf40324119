# SPDX-License-Identifier: MIT
"""Jobs that were suspended and cross a border of the month, from lines of a stand-in: what sacct is asked for, and
what its answers add up to.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core.errors import ParseError
from tests.backends.slurm.stand_in import HeadNode, Rule
from tests.backends.slurm.test_usage import GIVEN, GOOD, HOUR, MAY, NOON, SINCE, UNTIL, dated

DAY = 24 * HOUR
KEPT = {"cpu": 2, "mem": 5}


@pytest.fixture
def node(tmp_path: Path) -> HeadNode:
    return HeadNode(tmp_path, programs=("sacct",))


def text(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def line(state: str, elapsed: int, suspended: str, start: int, job: int = 7) -> str:
    return dated(f"a|ann|cpu=2,mem=5M|{state}|{elapsed}|{suspended}|{job}", start)


def test_of_a_job_suspended_and_over_a_border_sacct_reports_on_which_side_it_was(node: HeadNode) -> None:
    crossing = dated("a|ann|cpu=2,mem=5M|RUNNING|3600|01:00:00|7", UNTIL - HOUR)
    inside = dated("a|ann|cpu=2,mem=5M|COMPLETED|50|00:00:10|7")
    before = dated("a|ann|cpu=2|COMPLETED|50|00:00:10|9", SINCE - HOUR)
    whole = dated("a|ann|cpu=2|COMPLETED|11|00:00:00|8")
    node.rules(Rule("--truncate", stdout=text(crossing.replace("3600|01:00:00", "1200|00:40:00"), inside)))
    node.answer("sacct", text(crossing, inside, before, whole))
    usage = node.backend().usage(GIVEN)
    assert usage.accounts["a"].total == {"cpu": 2 * (1200 + 50 + 11), "mem": 5 * (3600 + 60)}
    assert usage.records == 4
    assert [(job.id, job.seconds) for job in usage.live] == [("7", 1200)]
    _, second = node.calls()
    assert "--truncate --jobs=7 --format=" in second
    assert "--starttime=2026-05-01T00:00:00 --endtime=2026-06-01T00:00:00" in second


def halted(node: HeadNode, *, ran: int, cut: tuple[int, str], before: int, state: str = "SUSPENDED") -> None:
    """A job that began ten hours before the month and is suspended now: what sacct says of its life, of the month,
    and of the time before. In both cuts it runs on to the end where it is suspended.
    """
    started = SINCE - 10 * HOUR
    node.answer("sacct", text(line("SUSPENDED", ran, "20-00:00:00", started)))
    node.rules(
        Rule("--starttime=2000-01-01T00:00:00", stdout=text(line(state, before, "00:00:00", started))),
        Rule("--truncate", stdout=text(line(state, *cut, started))),
    )


# What sacct says, and how many seconds the job really ran in the month.
HALTED = {
    "in the month": (11 * HOUR, (20 * DAY, "00:00:00"), 10 * HOUR, HOUR),
    "with a suspension in the month": (11 * HOUR, (20 * DAY - HOUR, "01:00:00"), 10 * HOUR, HOUR),
    "with a suspension before": (5 * HOUR, (20 * DAY, "00:00:00"), 4 * HOUR, HOUR),
    "before the month": (9 * HOUR, (20 * DAY, "00:00:00"), 10 * HOUR, 0),
    "as the month began": (10 * HOUR, (20 * DAY, "00:00:00"), 10 * HOUR, 0),
    "after the month": (60 * DAY, (31 * DAY, "00:00:00"), 10 * HOUR, 31 * DAY),
}


@pytest.mark.parametrize("when", HALTED)
def test_a_job_that_is_suspended_now_counts_what_it_ran(node: HeadNode, when: str) -> None:
    ran, cut, before, share = HALTED[when]
    halted(node, ran=ran, cut=cut, before=before)
    usage = node.backend().usage(MAY)
    assert usage.accounts["a"].total == {name: count * share for name, count in KEPT.items()}
    assert [job.seconds for job in usage.live] == ([share] if share else [])


def test_what_a_suspended_job_keeps_from_others_counts_as_given(node: HeadNode) -> None:
    halted(node, ran=11 * HOUR, cut=(20 * DAY - HOUR, "01:00:00"), before=10 * HOUR)
    assert node.backend().usage(GIVEN).accounts["a"].total == {"cpu": 2 * HOUR, "mem": 5 * 20 * DAY}


def test_how_much_it_ran_before_the_month_is_asked_for_these_only(node: HeadNode) -> None:
    halted(node, ran=11 * HOUR, cut=(20 * DAY, "00:00:00"), before=10 * HOUR)
    node.backend().usage(MAY)
    _, second, third = node.calls()
    assert "--starttime=2026-05-01T00:00:00 --endtime=2026-06-01T00:00:00 --truncate --jobs=7 " in second
    assert "--starttime=2000-01-01T00:00:00 --endtime=2026-05-01T00:00:00 --truncate --jobs=7 " in third
    assert "--duplicates" in third


def test_of_a_job_that_began_in_the_month_nothing_more_is_asked(node: HeadNode) -> None:
    """It is suspended since before the month ended, and to sacct ran on to its end."""
    node.answer("sacct", text(line("SUSPENDED", HOUR, "170-00:00:00", NOON)))
    node.rules(Rule("--truncate", stdout=text(line("SUSPENDED", UNTIL - NOON, "00:00:00", NOON))))
    assert node.backend().usage(MAY).accounts["a"].total == {"cpu": 2 * HOUR, "mem": 5 * HOUR}
    assert len(node.calls()) == 2


@pytest.mark.parametrize("first", ["RUNNING", "SUSPENDED"])
def test_a_job_that_is_suspended_or_resumed_between_two_answers_counts_no_less(
    node: HeadNode, first: str
) -> None:
    later = "SUSPENDED" if first == "RUNNING" else "RUNNING"
    halted(node, ran=11 * HOUR, cut=(HOUR, "00:00:05"), before=10 * HOUR, state=later)
    node.answer("sacct", text(line(first, 11 * HOUR, "00:00:05", SINCE - 10 * HOUR)))
    assert node.backend().usage(MAY).accounts["a"].total["cpu"] == 2 * HOUR


def test_where_sacct_does_not_report_it_the_answer_is_unknown(node: HeadNode) -> None:
    crossing = dated("a|ann|cpu=2,mem=5M|RUNNING|3600|01:00:00|7", UNTIL - HOUR)
    node.rules(Rule("--truncate", stdout=GOOD))
    node.answer("sacct", text(crossing))
    with pytest.raises(ParseError, match="in the first read and not in a later one"):
        node.backend().usage(MAY)


def test_where_sacct_does_not_report_the_time_before_the_answer_is_unknown(node: HeadNode) -> None:
    started = SINCE - HOUR
    node.answer("sacct", text(line("SUSPENDED", HOUR, "20-00:00:00", started)))
    node.rules(
        Rule("--starttime=2000-01-01T00:00:00", stdout=GOOD),
        Rule("--truncate", stdout=text(line("SUSPENDED", 20 * DAY, "00:00:00", started))),
    )
    with pytest.raises(ParseError, match="in the first read and not in a later one"):
        node.backend().usage(MAY)
