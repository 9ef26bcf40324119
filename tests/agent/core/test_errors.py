# SPDX-License-Identifier: MIT
"""One tree of errors; what is retryable is decided by what the fault says about the request."""

from __future__ import annotations

import pytest

from agent.core import errors
from agent.core.errors import (
    CommandFailed,
    ParseError,
    SiteAgentError,
    WaldurAnswerError,
    WaldurError,
    WaldurLacks,
    by_cause,
)

STATUSES = [
    (None, True, False),
    (400, False, False),
    (401, False, True),
    (403, False, True),
    (404, False, False),
    (405, False, False),
    (409, False, False),
    (422, False, False),
    (429, True, False),
    (500, True, False),
    (502, True, False),
    (503, True, False),
    (504, True, False),
]


@pytest.mark.parametrize(("status", "retryable", "denied"), STATUSES)
def test_the_status_says_whether_a_request_may_be_sent_again(
    status: int | None, retryable: bool, denied: bool
) -> None:
    error = WaldurError("no", method="GET", path="/api/", status=status)
    assert (error.retryable, error.denied) == (retryable, denied)


@pytest.mark.parametrize("status", [None, 200, 404])
def test_an_answer_that_waldur_does_not_give_may_be_another_one_later(status: int | None) -> None:
    assert WaldurAnswerError("HTML", method="GET", path="/api/", status=status).retryable


def test_what_a_server_lacks_it_will_lack_later() -> None:
    assert not WaldurLacks("no such endpoint", method="GET", path="/api/", status=404).retryable


KINDS = {
    "ConfigError": False,
    "PlanRefused": False,
    "BackendError": False,
    "BackendUnavailable": True,
    "ClusterBusy": True,
    "JobsStillActive": True,
    "NotApplied": True,
    "NotEmpty": True,
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_says_whether_to_try_again(name: str) -> None:
    error = getattr(errors, name)("words")
    assert error.retryable is KINDS[name]
    assert str(error) == "words"


def test_all_errors_are_of_one_family() -> None:
    named = vars(errors).values()
    kinds = [kind for kind in named if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert len(kinds) >= len(KINDS)
    assert all(issubclass(kind, SiteAgentError) for kind in kinds)


SAID = [
    ("", "", "no output"),
    ("out\n", "", "out"),
    ("out\n", " err \n\n second\n", "err / second"),
]


@pytest.mark.parametrize(("stdout", "stderr", "words"), SAID)
def test_a_failed_command_says_its_words_on_one_line(stdout: str, stderr: str, words: str) -> None:
    error = CommandFailed(["sacctmgr", "show"], returncode=1, stdout=stdout, stderr=stderr)
    assert str(error) == f"`sacctmgr show` ended with 1: {words}"
    assert not error.retryable


def test_a_long_answer_does_not_become_a_long_message() -> None:
    error = CommandFailed(["sacctmgr"], returncode=1, stdout="x\n" * 100_000, stderr="")
    assert len(str(error)) < 5000
    assert len(str(ParseError("sacctmgr", "y" * 100_000, "too long"))) < 500


def test_errors_of_one_cause_stand_once_with_all_names() -> None:
    def away(path: str) -> WaldurError:
        return WaldurError(f"GET {path}/: no answer from https://w/: refused", method="GET", path=path)

    denied = CommandFailed(["sacctmgr", "show"], returncode=1, stdout="", stderr="denied")
    again = CommandFailed(["sacctmgr", "list"], returncode=1, stdout="", stderr="denied")
    errors: list[tuple[str, SiteAgentError]] = [
        ("A", away("orders")), ("B", denied), ("C", away("users")), ("A", away("users")), ("C", again),
    ]  # fmt: skip
    assert list(by_cause(errors)) == [("A, C", errors[0][1]), ("B, C", denied)]
