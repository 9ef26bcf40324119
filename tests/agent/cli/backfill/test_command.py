# SPDX-License-Identifier: MIT
"""`historical-usage` as an operator uses it: where the token comes from, what is printed, how it ends."""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from agent.cli.backfill.historical_usage import Options
from agent.cli.backfill.view import ProgressView, has_signs
from agent.cli.commands.services import hide_token, historical_usage
from agent.core.periods import Month
from agent.run.backfill.results import Ending, Line, Mark, MonthOutcome
from rig.history import YEAR
from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN
from tests.agent.run.backfill.operator import DATES, Operator

LOAD = ("historical-usage", "--local")
MARCH = ("-s", "2024-03-05", "-e", "2024-03-31")


@pytest.fixture(autouse=True)
def _no_token_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WALDUR_STAFF_TOKEN", raising=False)


def test_a_year_in_the_lines_that_sites_know(operator: Operator, with_token: str, command: Command) -> None:
    said = command(*LOAD, "-c", with_token, *DATES)
    assert (said.code, said.sentences()) == (0, [])
    lines = said.out.splitlines()
    assert lines[:7] == [
        "Starting historical usage loading",
        f"Found offering: Test SLURM ({operator.waldur.seed.offering_uuid})",
        "Staff user validation successful for user: staff",
        "Date range validated: 2024-01-01 to 2024-12-31 (365 days)",
        "Months are loaded in this process (--local)",
        "Will process 12 months of data",
        "Processing month 1/12: 2024-01",
    ]
    third = lines.index("Processing month 3/12: 2024-03")
    assert lines[third + 1 : third + 9] == [
        "Found 2 active resources to process",
        "Processing usage data for 2 accounts",
        "without an offering user in Waldur, submitted by name only: u1, u2",
        f"Submitted usage for resource {operator.names[0]}: {{'cpu': 3.00, 'mem': 3.00}}",
        f"Submitted usage for resource {operator.names[1]}: {{'cpu': 6.00, 'mem': 6.00}}",
        f"Submitted usage of users for resource {operator.names[0]}, cpu: {{'u1': 3.00}}",
        f"Submitted usage of users for resource {operator.names[0]}, mem: {{'u1': 3.00}}",
        f"Submitted usage of users for resource {operator.names[1]}, cpu: {{'u2': 6.00}}",
    ]
    assert lines[-3:] == [
        "Completed processing 2024-12 (2 resources)",
        "Historical usage loading completed successfully!",
        "Processed 12 months from 2024-01-01 to 2024-12-31",
    ]
    assert operator.counted() == [str(month) for month in YEAR]
    assert all(operator.is_loaded(month) for month in YEAR)
    assert operator.token not in said.out + said.err


def test_months_are_loaded_whole_whatever_the_days(
    operator: Operator, with_token: str, command: Command
) -> None:
    said = command(*LOAD, "-c", with_token, *MARCH)
    assert said.code == 0
    assert operator.is_loaded(Month(2024, 3))


def test_json(operator: Operator, with_token: str, command: Command) -> None:
    said = command(*LOAD, "-c", with_token, *MARCH, "--json")
    document = said.document()
    (month,) = document["months"]
    assert (document["failures"], document["queued"], document["start"]) == (0, False, "2024-03-05")
    assert (month["month"], month["result"], month["submitted"]) == ("2024-03", "done", 2)
    assert "Processing month 1/1: 2024-03" in said.err


def test_a_failed_month_is_listed_with_its_reason(
    operator: Operator, with_token: str, command: Command
) -> None:
    words = ("-c", with_token, "-s", "2024-01-01", "-e", "2024-03-31")
    operator.waldur.inject(Fault(path="set_usage", method="POST", status=400, body="no plan", skip=2))
    said = command(*LOAD, *words)
    lines = said.out.splitlines()
    assert said.code == 1
    assert lines[-4] == "error: 1 of 3 months failed:"
    assert lines[-3].startswith(
        f"  2024-02: {operator.names[0]}: POST marketplace-component-usages/set_usage/"
    )
    assert lines[-2] == "The same command with --resume loads these again"
    assert operator.is_loaded(Month(2024, 3))
    again = command(*LOAD, *words, "--resume")
    assert again.code == 0
    assert [line for line in again.out.splitlines() if line.startswith(("2024", "Processing month"))] == [
        *(line for line in again.out.splitlines() if line.startswith("2024-01 was loaded on ")),
        *(line for line in again.out.splitlines() if line.startswith("2024-03 was loaded on ")),
        "Processing month 2/3: 2024-02",
    ]
    assert len(operator.counted()) == 4


def test_no_option_shows_the_token() -> None:
    given = hide_token(click.Context(historical_usage), historical_usage.params[0], "0123456789abcdef")
    fields = {field.name: None for field in dataclasses.fields(Options)}
    options = Options(**{**fields, "user_token": given})
    assert options.user_token.reveal() == "0123456789abcdef"
    assert "0123456789abcdef" not in f"{options!r} {options} {given!r}"


def test_without_resume_everything_is_looked_at_again_and_nothing_sent(
    operator: Operator, with_token: str, command: Command
) -> None:
    command(*LOAD, "-c", with_token, *MARCH)
    operator.waldur.requests.reset()
    said = command(*LOAD, "-c", with_token, *MARCH)
    assert said.code == 0
    assert operator.waldur.requests.count("POST *") == 0
    assert "Waldur has all usage of 2024-03 already" in said.out


def _bad_dates(first: str, last: str) -> tuple[str, ...]:
    return ("-s", first, "-e", last)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (_bad_dates("2024-03-31", "2024-01-01"), "comes before --start-date 2024-03-31"),
        (_bad_dates("1984-01-01", "2024-01-01"), "at most 1825 are loaded at once"),
        (_bad_dates("2124-01-01", "2124-02-01"), "2124-01 has not begun"),
        (
            _bad_dates("yesterday", "2024-02-01"),
            "--start-date 'yesterday' is no date: write it as 2024-01-31",
        ),
    ],
)
def test_what_cannot_be_loaded_ends_with_1_before_anything_is_asked(
    operator: Operator, with_token: str, command: Command, words: tuple[str, ...], sentence: str
) -> None:
    operator.waldur.requests.reset()
    said = command(*LOAD, "-c", with_token, *words)
    assert said.code == 1
    (complaint,) = said.sentences()
    assert complaint.startswith("error: ") and sentence in complaint
    assert (operator.waldur.requests.count(), operator.calls()) == (0, [])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-s", "2024-01-01"), "Missing option '-e' / '--end-date'"),
        ((*MARCH, "--resume", "--dry-run"), "a dry run leaves nothing behind"),
        ((*MARCH, "--delay-between-months", "-1"), "-1 is not in the range"),
        ((*MARCH, "-o", UNKNOWN), f"offering {UNKNOWN} is not in "),
        ((*MARCH, "-o", "no uuid"), "offering no uuid is not in "),
    ],
)
def test_usage_errors(with_token: str, command: Command, words: tuple[str, ...], sentence: str) -> None:
    said = command(*LOAD, "-c", with_token, *words)
    assert said.code == 2
    assert sentence in said.err


def test_a_token_that_is_not_staff_s(
    operator: Operator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", operator.waldur.token("agent"))
    said = command(*LOAD, "-c", operator.configure(), *MARCH)
    assert said.code == 1
    (complaint,) = said.sentences()
    assert complaint == (
        "error: Historical usage loading requires staff user privileges: agent is not staff in Waldur. Use the token "
        "of a user who is (`is_staff`); --no-staff-check lets Waldur decide month by month"
    )
    assert operator.calls() == []
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", operator.waldur.token("agent"))
    unchecked = command(*LOAD, "-c", operator.configure(), *MARCH, "--no-staff-check")
    assert unchecked.code == 1
    assert "Waldur takes no usage of 2024-03, which is closed, from this token" in unchecked.out
    assert operator.waldur.requests.count("GET users/me/") == 1


def test_a_wrong_token(operator: Operator, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", "0123456789wrong")
    said = command(*LOAD, "-c", operator.configure(), *MARCH)
    assert said.code == 1
    assert "Historical usage loading requires staff user privileges, and these cannot be checked" in said.err
    assert "check the staff token" in said.err
    assert "0123456789wrong" not in said.err


def test_a_token_that_cannot_be_one(
    operator: Operator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", "\u201cabcdef\u201d")
    said = command(*LOAD, "-c", operator.configure(), *MARCH)
    assert said.code == 1
    assert said.sentences() == [
        "error: the staff token has a line break or a letter that no token has: copy it again"
    ]


def test_an_offering_that_waldur_does_not_have(
    operator: Operator, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", operator.token)
    said = command(*LOAD, "-c", operator.configure(waldur_offering_uuid=UNKNOWN), *MARCH)
    assert said.code == 1
    assert "No Offering matches the given query" in said.out + said.err


def test_a_server_that_ignores_dates(operator: Operator, with_token: str, command: Command) -> None:
    operator.waldur.inject(
        Fault(path="user-attribute-config", status=404, body="<h1>Not Found</h1>", times=None)
    )
    said = command(*LOAD, "-c", with_token, *DATES)
    assert said.code == 1
    assert "this Waldur is too old for past months" in said.err
    assert operator.waldur.requests.count("POST *") == 0
    assert operator.calls() == []


@pytest.mark.parametrize("reporting_backend", ["", None])
def test_an_offering_without_a_reporting_backend(
    operator: Operator, command: Command, reporting_backend: str | None
) -> None:
    operator.token_file()
    keys = {"staff_token_file": "staff-token", "reporting_backend": reporting_backend}
    said = command(*LOAD, "-c", operator.configure(**keys), *DATES)
    assert said.code == 1
    assert "Backend does not support historical usage reporting: offering Test SLURM has no" in said.err


def test_one_offering_of_several_has_to_be_named(
    operator: Operator, with_token: str, command: Command
) -> None:
    text = Path(with_token).read_text()
    head, _, entry = text.partition("offerings:\n")
    second = entry.partition("state_dir:")[0].replace(operator.waldur.seed.offering_uuid, "f" * 32)
    Path(with_token).write_text(f"{head}offerings:\n{second}{entry}")
    said = command(*LOAD, "-c", with_token, *MARCH)
    assert said.code == 2
    assert f"--offering-uuid is needed: {with_token} has Test SLURM ({'f' * 32}), " in said.err


def _typed(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("-t", operator.token)


def _in_a_file(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("--user-token-file", str(operator.token_file()))


def _in_the_environment(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    monkeypatch.setenv("WALDUR_STAFF_TOKEN", operator.token)
    return ()


def _configured(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    operator.token_file()
    return ()


@pytest.mark.parametrize("give", [_typed, _in_a_file, _in_the_environment, _configured])
def test_where_the_staff_token_comes_from(
    operator: Operator,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    give: Callable[[Operator, pytest.MonkeyPatch], tuple[str, ...]],
) -> None:
    """Whatever the way: it is in no output, in no state, and no program of the cluster inherits it."""
    keys = {"staff_token_file": "staff-token"} if give is _configured else {}
    words = give(operator, monkeypatch)
    said = command(*LOAD, "-c", operator.configure(**keys), *MARCH, *words)
    assert said.code == 0
    assert operator.is_loaded(Month(2024, 3))
    assert "WALDUR_STAFF_TOKEN" not in os.environ
    assert operator.token not in said.out + said.err
    state = [path.read_bytes() for path in (operator.folder / "state").rglob("*") if path.is_file()]
    assert state and all(operator.token.encode() not in content for content in state)
    assert any("stands" in s or "`ps` shows" in s for s in said.sentences()) is (give is _typed)


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o600, "is empty"),
        ("one\ntwo\n", 0o600, "has more than one line"),
        (None, 0o600, "cannot read"),
    ],
)
@pytest.mark.parametrize("configured", [False, True])
def test_a_file_without_a_token(
    operator: Operator, command: Command, text: str | None, mode: int, sentence: str, configured: bool
) -> None:
    path = operator.folder / "staff-token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    keys = {"staff_token_file": "staff-token"} if configured else {}
    words = () if configured else ("--user-token-file", str(path))
    said = command(*LOAD, "-c", operator.configure(**keys), *MARCH, *words)
    assert said.code == 1
    assert sentence in said.err


def test_a_token_file_that_everybody_may_read_is_warned_about(operator: Operator, command: Command) -> None:
    operator.token_file().chmod(0o644)
    said = command(*LOAD, "-c", operator.configure(staff_token_file="staff-token"), *MARCH)
    assert said.code == 0
    assert "chmod 600" in said.err


def test_without_any_token_and_no_person_to_ask(operator: Operator, command: Command) -> None:
    said = command(*LOAD, "-c", operator.configure(), *MARCH)
    assert said.code == 2
    assert "a staff token is needed: --user-token-file FILE, the variable WALDUR_STAFF_TOKEN" in said.err


class Terminal(io.StringIO):
    """What a terminal is to a program, in an encoding."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("encoding", "line"),
    [("utf-8", "\U0001f4c5 Processing month 1/1: 2024-01"), ("latin-1", "Processing month 1/1: 2024-01")],
)
def test_signs_are_for_terminals_that_can_show_them(encoding: str, line: str) -> None:
    stream = Terminal(encoding)
    with ProgressView(stream, [Month(2024, 1)], at_once=True) as view:
        view.begun(Month(2024, 1))
        view.ended(MonthOutcome("2024-01", Ending.DONE))
    assert any(text.endswith(line) for text in stream.getvalue().replace("\r", "\n").splitlines())
    assert "1/1" in stream.getvalue()
    assert not has_signs(io.StringIO())


def test_a_warning_of_every_month_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = ProgressView(sys.stdout, YEAR[:2], at_once=True)
    for month in YEAR[:2]:
        warning = Line(Mark.WARNING, "no component gpu")
        view.ended(MonthOutcome(str(month), Ending.DONE, lines=(warning, Line(Mark.INFO, "and this"))))
    assert capsys.readouterr().out.splitlines() == ["warning: no component gpu", "and this", "and this"]
