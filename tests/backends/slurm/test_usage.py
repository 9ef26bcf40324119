# SPDX-License-Identifier: MIT
"""What was used, from lines of sacct that a stand-in prints: what they add up to, and which answers are none."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, ParseError
from agent.core.periods import Month
from agent.core.usage import AccountUsage, JobUse, Usage, UsageQuery, UsageSource
from backends.base import JobReader, UsageReader
from backends.process import CommandMissing
from backends.slurm import tally
from tests.backends.slurm.stand_in import OUTAGES, HeadNode, Rule

MAY = UsageQuery(Month(2026, 5), "Europe/Tallinn")
GIVEN = UsageQuery(Month(2026, 5), "Europe/Tallinn", UsageSource.ALLOCATED)
# The month of Tallinn, and a moment in it.
SINCE, NOON, UNTIL = 1777582800, 1777700000, 1780261200


def dated(line: str, start: object = NOON) -> str:
    """A line of sacct, with the times of start and submission put in before the job's number."""
    common, _, job = line.rpartition("|")
    return f"{common}|{start}|{start}|{job}"


GOOD = dated("a|ann|cpu=2|COMPLETED|60|00:00:00|1") + "\n"


@pytest.fixture
def node(tmp_path: Path) -> HeadNode:
    return HeadNode(tmp_path, programs=("sacct",))


UsageOf = Callable[..., Usage]


@pytest.fixture
def usage_of(node: HeadNode) -> UsageOf:
    """The usage that the backend makes of these lines; those without times are dated."""

    def usage(*lines: str, query: UsageQuery = MAY) -> Usage:
        texts = [dated(line) if line.count("|") == 6 else line for line in lines]
        node.answer("sacct", "".join(f"{line}\n" for line in texts))
        return node.backend().usage(query)

    return usage


def test_one_command_asks_for_all_accounts(node: HeadNode) -> None:
    node.answer("sacct", GOOD)
    backend = node.backend()
    assert isinstance(backend, UsageReader)
    assert isinstance(backend, JobReader)
    assert backend.usage(MAY).query is MAY
    assert backend.executed == {"read": 1}
    assert node.calls() == [
        "sacct --allusers --allocations --noheader --parsable2 --noconvert --duplicates --clusters=c1 "
        "--starttime=2026-05-01T00:00:00 --endtime=2026-06-01T00:00:00 "
        "--format=Account,User,ReqTRES,State,ElapsedRaw,Suspended,Start,Submit,JobIDRaw"
    ]


def test_without_a_cluster_name_it_is_the_cluster_of_slurm_conf(node: HeadNode) -> None:
    node.answer("sacct", GOOD)
    node.backend({"cluster_name": ""}).usage(UsageQuery(Month(2026, 12), "UTC", UsageSource.ALLOCATED))
    (call,) = node.calls()
    assert "--clusters" not in call
    assert "--starttime=2026-12-01T00:00:00 --endtime=2027-01-01T00:00:00" in call
    assert "=Account,User,AllocTRES,State" in call


def test_seconds_times_tres_are_summed_by_account_and_user(usage_of: UsageOf) -> None:
    usage = usage_of(
        "a|ann|billing=2,cpu=2,mem=1000M,node=1|COMPLETED|100|00:00:00|1",
        "a|ann|billing=2,cpu=2,mem=1000M,node=1|FAILED|11|00:00:00|2",
        "a|bob|billing=1,cpu=1,gres/gpu=2,gres/gpu:a100=2,mem=2G,node=1|TIMEOUT|10|00:00:00|3",
        "b|bob|cpu=1|CANCELLED by 1000|7|00:00:00|4",
    )
    ann = {"billing": 222, "cpu": 222, "mem": 111_000, "node": 111}
    bob = {"billing": 10, "cpu": 10, "gres/gpu": 20, "gres/gpu:a100": 20, "mem": 20_480, "node": 10}
    total = {name: ann.get(name, 0) + bob[name] for name in bob}
    assert usage.accounts == {
        "a": AccountUsage(total, {"ann": ann, "bob": bob}),
        "b": AccountUsage({"cpu": 7}, {"bob": {"cpu": 7}}),
    }
    assert (usage.records, usage.scale, usage.live) == (4, 60, ())


def test_names_are_folded_as_in_the_snapshot(usage_of: UsageOf) -> None:
    usage = usage_of("Proj|Ann|cpu=1|COMPLETED|1|00:00:00|1", "proj|ann|cpu=1|COMPLETED|2|00:00:00|2")
    assert usage.accounts == {"proj": AccountUsage({"cpu": 3}, {"ann": {"cpu": 3}})}


AMOUNTS = {
    "cpu=3": {"cpu": 3},
    "mem=7M": {"mem": 7},
    "mem=7": {"mem": 7},
    "mem=2048K": {"mem": 2},
    "mem=3T": {"mem": 3 * 1024**2},
    "mem=2P": {"mem": 2 * 1024**3},
    "cpu=2K": {"cpu": 2048},
    "bb/cray=5G": {"bb/cray": 5120},
    "license/matlab@db=2": {"license/matlab@db": 2},
    "cpu=1,energy=987": {"cpu": 1},
    "cpu=18446744073709551614": {"cpu": 2**64 - 2},
    "": {},
}


@pytest.mark.parametrize("text", AMOUNTS)
def test_amounts_are_whole_and_memory_is_in_mebibytes(usage_of: UsageOf, text: str) -> None:
    usage = usage_of(f"a|ann|{text}|COMPLETED|1|00:00:00|1")
    assert usage.accounts["a"] == AccountUsage(AMOUNTS[text], {"ann": AMOUNTS[text]})


def test_what_pends_counts_nothing_and_what_runs_is_named(usage_of: UsageOf) -> None:
    usage = usage_of(
        "a|ann|cpu=4|PENDING|0|00:00:00|1",
        "a|ann|cpu=4|RUNNING|10|00:00:00|2",
        "a|ann|cpu=2|SUSPENDED|5|1-00:00:01|3",
        "a|ann|cpu=1|REQUEUED|9|00:00:00|4",
        "a|ann|cpu=4|RUNNING|0|00:00:00|5",
    )
    assert usage.accounts["a"].total == {"cpu": 59}
    assert usage.live == (
        JobUse("2", "a", "ann", "RUNNING", 10, {"cpu": 40}, str(NOON)),
        JobUse("3", "a", "ann", "SUSPENDED", 5, {"cpu": 10}, str(NOON)),
    )


def test_time_in_suspension_counts_for_what_was_kept_where_alloctres_counts(usage_of: UsageOf) -> None:
    line = "a|ann|cpu=2,mem=10M,gres/gpu=1|COMPLETED|100|1-00:01:40|1"
    assert usage_of(line).accounts["a"].total == {"cpu": 200, "mem": 1000, "gres/gpu": 100}
    kept_s = 100 + 86_500
    expected = {"cpu": 200, "mem": 10 * kept_s, "gres/gpu": kept_s}
    assert usage_of(line, query=GIVEN).accounts["a"].total == expected


def test_jobs_without_an_account_count_for_no_user_and_are_an_answer(usage_of: UsageOf) -> None:
    usage = usage_of("|1000|cpu=1|COMPLETED|5|00:00:00|1")
    assert (usage.accounts, usage.records) == ({}, 1)


def test_jobs_that_ran_without_tres_count_nothing_and_are_logged(
    usage_of: UsageOf, caplog: pytest.LogCaptureFixture
) -> None:
    usage = usage_of("a|ann||COMPLETED|5|00:00:00|1", "a|ann||PENDING|0|00:00:00|2", query=GIVEN)
    assert usage.accounts["a"].total == {}
    assert "no AllocTRES for some jobs that ran, most of them (5 s) in account a" in caplog.text


def test_no_line_is_no_record_after_a_second_read(usage_of: UsageOf, node: HeadNode) -> None:
    usage = usage_of()
    assert (usage.records, usage.accounts) == (0, {})
    assert len(node.calls()) == 2


def test_one_answer_without_lines_does_not_cost_the_month(node: HeadNode) -> None:
    """slurmdbd gives one, and sacct ends with 0, when it failed to read its own database (22.05)."""
    past = replace(MAY, month=Month.of(datetime.now(UTC)).previous)
    node.rules(Rule("sacct", times=1))
    start = int(past.month.start(UTC).timestamp()) + HOUR
    node.answer("sacct", dated("a|ann|cpu=2|COMPLETED|60|00:00:00|1", start) + "\n")
    assert node.backend().usage(past).accounts["a"].total == {"cpu": 120}
    first, second = node.calls()
    assert first == second


def test_a_month_that_is_still_to_come_is_not_asked_for_twice(node: HeadNode) -> None:
    node.answer("sacct", "")
    assert node.backend().usage(replace(MAY, month=Month(2999, 1))).records == 0
    assert len(node.calls()) == 1


def test_many_kinds_of_jobs_are_folded_and_lose_nothing(
    usage_of: UsageOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tally, "FOLD_AT", 3)
    lines = [f"a{n % 4}|u{n % 5}|cpu={n % 7}|RUNNING|1|00:00:01|{n}" for n in range(500)]
    usage = usage_of(*lines, query=GIVEN)
    assert sum(a.total["cpu"] for a in usage.accounts.values()) == sum(n % 7 for n in range(500))
    assert sum(len(a.users) for a in usage.accounts.values()) == 20
    assert len(usage.live) == sum(1 for n in range(500) if n % 7)


def test_live_jobs_are_named_up_to_a_bound(
    usage_of: UsageOf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tally, "LIVE_KEPT", 2)
    usage = usage_of(*(f"a|ann|cpu=1|RUNNING|1|00:00:00|{n}" for n in range(5)))
    assert [job.id for job in usage.live] == ["0", "1"]
    assert usage.accounts["a"].total == {"cpu": 5}
    assert "3 live jobs beyond 2" in caplog.text


# Borders --------------------------------------------------------------------------------------------

HOUR = 3600
WHERE = {
    "inside": (NOON, HOUR, HOUR),
    "from the first second": (SINCE, HOUR, HOUR),
    "to the last second": (UNTIL - HOUR, HOUR, HOUR),
    "over the beginning": (SINCE - HOUR, 3 * HOUR, 2 * HOUR),
    "over the end": (UNTIL - HOUR, 3 * HOUR, HOUR),
    "all month and longer": (SINCE - HOUR, UNTIL - SINCE + 2 * HOUR, UNTIL - SINCE),
    "ended as the month began": (SINCE - HOUR, HOUR, 0),
    "long before": (SINCE - 9 * HOUR, HOUR, 0),
    "began as the month ended": (UNTIL, HOUR, 0),
    "long after": (UNTIL + 9 * HOUR, HOUR, 0),
}


@pytest.mark.parametrize("where", WHERE)
def test_jobs_are_cut_at_the_borders_of_the_month(usage_of: UsageOf, where: str) -> None:
    start, elapsed, share = WHERE[where]
    usage = usage_of(
        dated(f"a|ann|cpu=2,mem=5M|COMPLETED|{elapsed}|00:00:00|1", start),
        dated(f"b|ann|cpu=2|RUNNING|{elapsed}|00:00:00|2", start),
    )
    assert usage.accounts["a"].total == {"cpu": 2 * share, "mem": 5 * share}
    assert usage.accounts["b"].total == {"cpu": 2 * share}
    assert [(job.seconds, dict(job.counts)) for job in usage.live] == [(share, {"cpu": 2 * share})][
        : bool(share)
    ]


def test_times_are_understood_in_the_form_of_the_emulator_too(usage_of: UsageOf) -> None:
    """In the hour that the clock repeats it is unknown which one is meant."""
    line = "a|ann|cpu=1|COMPLETED|7200|00:00:00|1"
    assert usage_of(dated(line, "2026-05-31T23:00:00")).accounts["a"].total == {"cpu": HOUR}
    assert usage_of(dated(line, "2026-04-30T23:30:00")).accounts["a"].total == {"cpu": 1.5 * HOUR}


def test_the_reference_leaves_out_the_last_second(node: HeadNode) -> None:
    node.answer("sacct", dated("a|ann|cpu=1|COMPLETED|7200|00:00:00|1", UNTIL - HOUR) + "\n")
    usage = node.backend().usage(replace(MAY, as_reference=True))
    assert usage.accounts["a"].total == {"cpu": HOUR - 1}
    (call,) = node.calls()
    assert "--duplicates" not in call
    assert "--endtime=2026-05-31T23:59:59" in call


# Answers that are none ----------------------------------------------------------------------------

FOREIGN = {
    "words": "sacct: this is a notice",
    "an empty line": "",
    "too few columns": "a|ann|cpu=2|COMPLETED|60|00:00:00|5|1",
    "too many columns": GOOD.strip() + "|x",
    "a bar in a name": dated("a|an|n|cpu=2|COMPLETED|60|00:00:00|1"),
    "seconds that are no number": dated("a|ann|cpu=2|COMPLETED|0:60|00:00:00|1"),
    "no seconds": dated("a|ann|cpu=2|COMPLETED||00:00:00|1"),
    "negative seconds": dated("a|ann|cpu=2|COMPLETED|-60|00:00:00|1"),
    "digits of another script": dated("a|ann|cpu=2|COMPLETED|\u0666\u0660|00:00:00|1"),
    "digits with a line between": dated("a|ann|cpu=2|COMPLETED|6_0|00:00:00|1"),
    "a clock that is none": dated("a|ann|cpu=2|COMPLETED|60|x|1"),
    "no start of a job that ran": dated("a|ann|cpu=2|COMPLETED|60|00:00:00|1", "Unknown"),
    "no number of a job that was suspended": dated("a|ann|cpu=2|COMPLETED|60|00:00:01|x"),
    "a fraction": dated("a|ann|cpu=2,mem=62.50G|COMPLETED|60|00:00:00|1"),
    "a TRES without amount": dated("a|ann|cpu=2,mem|COMPLETED|60|00:00:00|1"),
    "an amount that is no number": dated("a|ann|cpu=two|COMPLETED|60|00:00:00|1"),
    "more seconds than there ever were": dated(f"a|ann|cpu=2|COMPLETED|{'9' * 5000}|00:00:00|1"),
    "a start after the end of all days": dated("a|ann|cpu=2|COMPLETED|60|00:00:00|1", "9" * 5000),
    "a clock of a million years": dated(f"a|ann|cpu=2|COMPLETED|60|{'9' * 5000}-00:00:01|1"),
    "an amount beyond all counting": dated(f"a|ann|cpu={'9' * 5000}|COMPLETED|60|00:00:00|1"),
    "an unknown unit": dated("a|ann|cpu=2E|COMPLETED|60|00:00:00|1"),
    "an amount without TRES": dated("a|ann|=2|COMPLETED|60|00:00:00|1"),
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("where", ["first", "last"])
def test_a_line_that_was_not_asked_for_makes_the_whole_answer_unknown(
    usage_of: UsageOf, kind: str, where: str
) -> None:
    good = [GOOD.strip()] * 3
    with pytest.raises(ParseError) as error:
        usage_of(*([FOREIGN[kind], *good] if where == "first" else [*good, FOREIGN[kind]]))
    assert error.value.line == FOREIGN[kind]
    assert error.value.retryable


def test_a_last_line_that_is_cut_makes_the_whole_answer_unknown(node: HeadNode) -> None:
    node.answer("sacct", GOOD + GOOD[:-1])
    with pytest.raises(ParseError, match="the last line is cut"):
        node.backend().usage(MAY)


def test_a_warning_is_logged_and_the_answer_used(node: HeadNode, caplog: pytest.LogCaptureFixture) -> None:
    node.rules(Rule("sacct", stdout=GOOD, stderr="sacct: warning: something is deprecated\n"))
    assert node.backend().usage(MAY).accounts["a"].total == {"cpu": 120}
    assert "something is deprecated" in caplog.text


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("said", OUTAGES)
def test_words_of_an_outage_make_an_answer_unknown_whatever_came_before(
    node: HeadNode, said: str, code: int
) -> None:
    node.rules(Rule("sacct", code=code, stdout=GOOD, stderr=said))
    with pytest.raises(BackendUnavailable):
        node.backend().usage(MAY)


@pytest.mark.parametrize(("code", "retryable"), [(1, False), (-9, True)])
def test_an_end_with_an_error_after_rows_makes_the_answer_unknown(
    node: HeadNode, code: int, retryable: bool
) -> None:
    node.rules(Rule("sacct", code=code, stdout=GOOD * 1000, stderr="sacct: error: Invalid field requested\n"))
    with pytest.raises(CommandFailed, match="Invalid field requested") as error:
        node.backend().usage(MAY)
    assert error.value.retryable is retryable


@pytest.mark.parametrize(
    ("lines", "said"),
    [(1000, "after 1000 lines: no word why"), (1, "after 1 line: no word"), (0, ": no output")],
)
def test_an_end_without_a_word_is_reported_with_the_lines_before_it(
    node: HeadNode, lines: int, said: str
) -> None:
    node.rules(Rule("sacct", code=1, stdout=GOOD * lines))
    with pytest.raises(CommandFailed, match=f"ended with 1 ?{said}"):
        node.backend().usage(MAY)


def test_without_sacct_the_error_names_it(tmp_path: Path) -> None:
    with pytest.raises(CommandMissing, match=r"cannot start `.*/sacct`"):
        HeadNode(tmp_path, programs=()).backend().usage(MAY)


# One account, and single jobs -----------------------------------------------------------------------


@pytest.mark.parametrize("prefix", [[], ["docker", "exec", "slurm ctld"]])
def test_the_command_for_one_account_is_a_line_for_a_shell(node: HeadNode, prefix: list[str]) -> None:
    line = node.backend({"command_prefix": prefix}).usage_command(GIVEN, "a b")
    words = shlex.split(line)
    start = [*prefix, "env", "TZ=Europe/Tallinn"] if prefix else ["TZ=Europe/Tallinn"]
    assert words[: len(start) + 1] == [*start, str(node.bin / "sacct")]
    assert words[-2:] == [
        "--accounts=a b",
        "--format=JobIDRaw,User,State,AllocTRES,ElapsedRaw,Suspended",
    ]
    assert "--truncate" in words
    assert "\n" not in line
    assert node.calls() == []


def test_single_jobs_are_read_run_by_run_as_those_that_live(node: HeadNode) -> None:
    """Else what one run has lost hides behind what another counts."""
    lines = (
        dated("a|ann|cpu=2|NODE_FAIL|10|00:00:00|7"),
        dated("a|ann|cpu=2|RUNNING|5|00:00:00|7", NOON + 60),
        dated("a|ann|cpu=1|COMPLETED|3|00:00:00|8"),
        dated("a|bob|cpu=9|COMPLETED|9|00:00:00|12"),
    )
    node.answer("sacct", "".join(f"{line}\n" for line in lines))
    backend = node.backend()
    found = backend.job_uses(MAY, ["12", "7", "99", "7", "", "x", "1;2"])
    assert found == [
        JobUse("7", "a", "ann", "NODE_FAIL", 10, {"cpu": 20}, str(NOON)),
        JobUse("7", "a", "ann", "RUNNING", 5, {"cpu": 10}, str(NOON + 60)),
        JobUse("12", "a", "bob", "COMPLETED", 9, {"cpu": 81}, str(NOON)),
    ]
    (call,) = node.calls()
    assert "--jobs=7,12,99 " in call
    assert "--starttime=2026-05-01T00:00:00 --endtime=2026-06-01T00:00:00" in call
    assert backend.usage(MAY).live == (found[1],)
    assert len({use.run for use in found}) == 3


def test_many_jobs_are_asked_for_in_few_commands(node: HeadNode) -> None:
    node.answer("sacct", "")
    assert node.backend().job_uses(MAY, [str(n) for n in range(2500)]) == []
    assert len(node.calls()) == 3
    assert node.backend().job_uses(MAY, []) == []
    assert len(node.calls()) == 3


def test_single_jobs_of_a_broken_answer_are_unknown(node: HeadNode) -> None:
    node.answer("sacct", GOOD + "x\n")
    with pytest.raises(BackendError):
        node.backend().job_uses(MAY, ["1"])
