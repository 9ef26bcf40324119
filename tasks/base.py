# SPDX-License-Identifier: MIT
"""The base of all tasks: log a pass, and retry it by the error that it ended with (`POLICIES`)."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from celery.utils.time import get_exponential_backoff_interval, maybe_iso8601, maybe_make_aware

from agent.core.errors import (
    AnswerTooSlow,
    BackendUnavailable,
    ClusterBusy,
    JobsStillActive,
    OfferingPaused,
    PassUnfinished,
    SiteAgentError,
)
from agent.run.results import PassReport
from tasks.limits import COUNTDOWN_MAX_S

log = logging.getLogger(__name__)


class OutOfTime(SiteAgentError):
    """The soft time limit was reached."""

    retryable = True


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Wait `base_s`, doubled each time up to `cap_s`, plus or minus the share `jitter`; after `attempts` give up."""

    attempts: int = 10
    base_s: int = 5
    cap_s: int = COUNTDOWN_MAX_S
    jitter: float = 0.2

    def countdown_s(self, retries: int, random_unit: float) -> float:
        """Return the seconds until the next attempt. `random_unit`: a random number from 0 to 1."""
        wait_s: int = get_exponential_backoff_interval(self.base_s, retries, self.cap_s)
        return min(float(self.cap_s), wait_s * (1 + self.jitter * (2 * random_unit - 1)))


POLICIES: Mapping[type[SiteAgentError], RetryPolicy] = {
    PassUnfinished: RetryPolicy(attempts=100, base_s=1, cap_s=2),
    JobsStillActive: RetryPolicy(base_s=20, cap_s=120),
    ClusterBusy: RetryPolicy(base_s=10, cap_s=60),
    BackendUnavailable: RetryPolicy(base_s=5, cap_s=120),
    AnswerTooSlow: RetryPolicy(attempts=3, base_s=COUNTDOWN_MAX_S, jitter=0),
    # For a day, or a little longer.
    OfferingPaused: RetryPolicy(attempts=300, base_s=COUNTDOWN_MAX_S, jitter=0),
    SiteAgentError: RetryPolicy(),
}


def policy_for(error: SiteAgentError) -> RetryPolicy:
    return next(POLICIES[kind] for kind in type(error).__mro__ if kind in POLICIES)


class SiteTask(Task):
    """Takes identifiers only as arguments. A task whose error may pass retries itself; Flower shows the retries."""

    throws = (SiteAgentError,)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except SoftTimeLimitExceeded:
            self.come_back(
                OutOfTime("the pass took longer than a task may; what it did stays, the rest goes on")
            )
        except SiteAgentError as error:
            log.error("%s %s: %s", self.name, args, error)
            raise

    def finish(self, report: PassReport) -> dict[str, int]:
        """Log the pass, and retry where something in it may work later. Raises the error that ended the pass."""
        if report.results:
            # Orders that the policy lets wait are logged once, when they are held.
            log.log(
                logging.INFO if report.outcomes or report.failed else logging.DEBUG,
                "%s of offering %s: %s%s in %.1f s, %d requests, %d cluster commands",
                report.mode,
                report.offering_name,
                ", ".join(f"{count} {result}" for result, count in sorted(report.counted().items())),
                "".join(f", plan {plan.id} is held" for plan in report.held),
                report.effort.seconds,
                report.effort.requests.total(),
                report.effort.commands.total(),
            )
        error = report.retryable_error
        if error is not None:
            self.come_back(error)
        if report.error is not None:
            raise report.error
        return dict(report.counted())

    def come_back(self, error: SiteAgentError) -> None:
        """Raise Celery's Retry, or the error itself after the last attempt, and where the next pass comes before a
        retry could. Flower shows both with the reason.
        """
        policy = policy_for(error)
        countdown_s = policy.countdown_s(self.request.retries, random.random())  # noqa: S311  (jitter, not a secret)
        # A retry keeps the expiry of its task: for a pass, when beat sends the next one.
        expires, next_try = (
            maybe_iso8601(self.request.expires),
            datetime.now(UTC) + timedelta(seconds=countdown_s),
        )
        if expires is not None and maybe_make_aware(expires) <= next_try:
            log.warning(
                "%s %s: not tried again by itself, the next pass goes on: %s",
                self.name,
                self.request.args,
                error,
            )
            raise error
        if self.request.retries + 1 < policy.attempts:
            log.warning(
                "%s %s: attempt %d of %d at %s (in %.0f s): %s",
                self.name,
                self.request.args,
                self.request.retries + 2,
                policy.attempts,
                next_try.strftime("%H:%M:%SZ"),
                countdown_s,
                error,
            )
        raise self.retry(exc=error, countdown=countdown_s, max_retries=policy.attempts - 1)
