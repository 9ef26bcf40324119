# SPDX-License-Identifier: MIT
"""Active jobs through slurmrestd: slurmctld lists its jobs, and takes the cancellation of each by its number."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.core.account_names import fold
from agent.core.actions import CancelJobs
from agent.core.errors import BackendError, ParseError
from agent.core.plans import Outcome
from backends.slurm.jobs import CANCEL_GRACE_S, wait_for_end
from backends.slurm.rest.client import ACCESS_DENIED, RequestDenied, RequestRefused, RestClient, items

log = logging.getLogger(__name__)

PATH = "slurm/jobs/"
# slurmctld shows jobs for some minutes after their end. Every other state, and one that is completing, is active.
ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
COMPLETING = "COMPLETING"


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    account: str
    user: str


class RestJobs:
    """The jobs of one cluster."""

    def __init__(self, client: RestClient, *, grace_s: float = CANCEL_GRACE_S) -> None:
        self._client = client
        self._grace_s = grace_s

    def active(self, accounts: Collection[str]) -> Counter[tuple[str, str]]:
        """Return the active jobs in these accounts; who is not named has none. Raises BackendError."""
        return Counter((job.account, job.user) for job in self._jobs() if job.account in accounts)

    def cancel(self, actions: Sequence[CancelJobs]) -> Iterator[Outcome]:
        """Cancel the jobs of each action, then wait once for all until none of them is active."""
        started_s = time.monotonic()
        errors: dict[CancelJobs, BackendError | None] = {}
        lines: dict[CancelJobs, tuple[str, ...]] = {}
        try:
            jobs = self._jobs()
        except BackendError as error:
            yield from (Outcome(action, error) for action in actions)
            return
        for action in actions:
            named = [job for job in jobs if job.account == action.account and action.user in ("", job.user)]
            lines[action] = tuple(f"DELETE slurm/job/{job.id}" for job in named)
            errors[action] = self._cancel(named)
        sent = [action for action, error in errors.items() if error is None]
        errors |= wait_for_end(self.active, sent, started_s, self._grace_s)
        duration_s = time.monotonic() - started_s
        yield from (Outcome(action, errors[action], lines[action], duration_s) for action in actions)

    def _cancel(self, jobs: Sequence[Job]) -> BackendError | None:
        """Return the first error. A job that has ended since is none: who is active still is asked afterwards."""
        for job in jobs:
            try:
                document = self._client.write("DELETE", f"slurm/job/{job.id}")
            except RequestRefused as refusal:
                log.warning("job %s is not cancelled: %s", job.id, refusal)
                continue
            except BackendError as error:
                return error
            for item in (document or {}).get("status") or ():
                reason = item.get("error") if isinstance(item, Mapping) else None
                if isinstance(reason, Mapping) and reason.get("code") == ACCESS_DENIED:
                    return RequestDenied(
                        f"job {job.id} is not cancelled: {reason.get('string')}. The agent's user needs AdminLevel "
                        "Operator in SLURM"
                    )
        return None

    def _jobs(self) -> list[Job]:
        return [
            Job(_number(item), fold(str(item.get("account") or "")), fold(str(item.get("user_name") or "")))
            for item in items(self._client.read(PATH), "jobs")
            if _is_active(item)
        ]


def states(value: Any) -> list[str]:
    """Return the state of a job and its flags. Raises ParseError."""
    found = [value] if isinstance(value, str) else value
    if not (isinstance(found, list) and found and all(isinstance(word, str) for word in found)):
        raise ParseError("slurmrestd", str(value), "a job has no state")
    return list(found)


def _is_active(item: Mapping[str, Any]) -> bool:
    words = states(item.get("job_state"))
    return COMPLETING in words or not ENDED & set(words)


def _number(item: Mapping[str, Any]) -> int:
    number = item.get("job_id")
    if isinstance(number, bool) or not isinstance(number, int):
        raise ParseError(PATH, str(number), "a job has no number")
    return number
