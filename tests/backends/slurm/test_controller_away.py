# SPDX-License-Identifier: MIT
"""slurmctld away: what it alone reports is unknown, with the reason, and what slurmdbd reports is read. Unknown jobs
are never none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from agent.core.actions import CancelJobs
from agent.core.errors import BackendUnavailable
from agent.core.model import Part
from backends.base import Scope
from backends.slurm import jobs
from tests.agent.waldur.stand_in import Answer, Asked, says
from tests.backends.slurm.stand_in import HeadNode, Rule
from tests.backends.slurm.test_rest_answers import Start, error, row, start, tree

__all__ = ("start",)

SILENT = "slurmctld does not answer"
AWAY = {
    "busy": (
        Rule("squeue", 1, stderr="slurm_load_jobs error: Socket timed out on send/recv operation\n"),
        SILENT,
    ),
    "stopped": (Rule("squeue", 1, stderr="Unable to contact slurm controller (connect failure)\n"), SILENT),
    "a refusal": (Rule("squeue", 1, stderr="Access/permission denied\n"), "Access/permission denied"),
    "cut": (Rule("squeue", stdout="a|ann\na"), "cannot read the output of `squeue`"),
}


@pytest.mark.parametrize("what", AWAY)
def test_jobs_that_cannot_be_read_are_unknown_with_the_reason_and_the_tree_is_known(
    node: HeadNode, what: str
) -> None:
    rule, words = AWAY[what]
    node.rules(rule)
    seen = node.backend().observe(Scope(jobs_of=frozenset({"a"})))
    assert seen.accounts.keys() == node.backend().observe().accounts.keys()
    assert Part.JOBS not in seen.complete
    assert (seen.active_jobs, seen.active_users) == ({}, {})
    assert seen.unread.keys() == {Part.JOBS} and words in seen.unread[Part.JOBS]
    assert sum("squeue" in call for call in node.calls()) == 1


def test_partitions_that_slurmctld_cannot_report_now_are_unknown(node: HeadNode) -> None:
    node.rules(Rule("show partition", 1, stderr="Unable to contact slurm controller (connect failure)\n"))
    seen = node.backend({"default_partition": "main"}).observe(
        Scope(frozenset(), names=frozenset({Part.PARTITIONS}))
    )
    assert Part.PARTITIONS not in seen.complete and SILENT in seen.unread[Part.PARTITIONS]


def test_accounts_that_cannot_be_read_are_an_error_whatever_slurmctld_says(node: HeadNode) -> None:
    node.rules(AWAY["stopped"][0], Rule("show assoc", 1, stderr="Connection refused\n"))
    with pytest.raises(BackendUnavailable, match="the accounting database does not answer"):
        node.backend().observe(Scope(jobs_of=frozenset({"a"})))


# As slurmrestd 24.11.5 (v0.0.42) answers with slurmctld stopped, both with 502; slurmdb/ goes on with 200.
JOBS = {
    "jobs": [],
    **error(1800, "Unable to contact slurm controller (connect failure)"),
    "warnings": [],
}
PARTITIONS: dict[str, list[str]] = {"errors": [], "warnings": []}


@pytest.mark.parametrize("status", [502, 200])
def test_behind_slurmrestd_as_well(start: Start, status: int) -> None:
    """The list of jobs is there, and empty."""

    def script(asked: Asked) -> Answer:
        if "/slurmdb/" in asked.target:
            return says(tree(row("a"), row("a", "ann")))
        return says(JOBS, status)

    server, backend = start(script)
    parts = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS})
    seen = backend.observe(Scope(parts, jobs_of=frozenset({"a"})))
    assert seen.users_of("a") == {"ann"}
    assert Part.JOBS not in seen.complete and seen.active_jobs == {}
    assert "Unable to contact slurm controller" in seen.unread[Part.JOBS]
    # A 502 is asked once more, as every read is; the tree is read once.
    assert sum("/jobs/" in asked.target for asked in server.asked) == (2 if status == 502 else 1)


def test_partitions_behind_slurmrestd_are_unknown_and_not_none(start: Start) -> None:
    _, backend = start(lambda _: says(PARTITIONS, 502), default_partition="main")
    seen = backend.observe(Scope(frozenset(), names=frozenset({Part.PARTITIONS})))
    assert Part.PARTITIONS not in seen.complete
    assert "slurmrestd answered 502" in seen.unread[Part.PARTITIONS]


def test_one_answer_that_does_not_come_ends_no_wait_for_cancelled_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "CANCEL_POLL_S", 0)
    answers: list[Mapping[tuple[str, str], int] | BackendUnavailable]
    answers = [{("a", "ann"): 1}, BackendUnavailable("busy"), BackendUnavailable("busy"), {}]

    def active(_: set[str]) -> Mapping[tuple[str, str], int]:
        answer = answers.pop(0)
        if isinstance(answer, BackendUnavailable):
            raise answer
        return answer

    assert jobs.wait_for_end(active, [CancelJobs(account="a")], time.monotonic(), 60) == {}
    assert answers == []


def test_the_wait_for_cancelled_jobs_has_an_end_where_no_answer_comes() -> None:
    cancel = CancelJobs(account="a")

    def active(_: set[str]) -> None:
        raise BackendUnavailable("away")

    error = jobs.wait_for_end(active, [cancel], time.monotonic() - 31, 30)[cancel]
    assert isinstance(error, BackendUnavailable)
