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
from celery.utils.time import maybe_iso8601, maybe_make_aware

from agent.core.backoff import Backoff
from agent.core.errors import (
    AnswerTooSlow,
    BackendUnavailable,
    ClusterBusy,
    JobsStillActive,
    OfferingPaused,
    PassUnfinished,
    SiteAgentError,
)
from agent.observability import logs, sentry
from agent.run.results import PassReport
from tasks import arguments, starts
from tasks.limits import COUNTDOWN_MAX_S

log = logging.getLogger(__name__)

# Letters; a message of a periodic policy may be long.
ARGUMENTS_SHOWN = 500


class OutOfTime(SiteAgentError):
    """The soft time limit was reached."""

    retryable = True


DEFAULT_BACKOFF = Backoff(base_s=5, cap_s=COUNTDOWN_MAX_S, jitter=0.2)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """After `attempts` the next poll goes on. No wait is longer than the back-off's `cap_s`."""

    attempts: int = 10
    backoff: Backoff = DEFAULT_BACKOFF

    def countdown_s(self, retries: int, spread: float) -> float:
        """Return the wait before the next attempt, longer or shorter by a random `spread` between -1 and 1."""
        return min(self.backoff.cap_s, self.backoff.wait_s(retries, spread))


POLICIES: Mapping[type[SiteAgentError], RetryPolicy] = {
    PassUnfinished: RetryPolicy(100, Backoff(base_s=1, cap_s=2, jitter=0.2)),
    JobsStillActive: RetryPolicy(10, Backoff(base_s=20, cap_s=120, jitter=0.2)),
    ClusterBusy: RetryPolicy(10, Backoff(base_s=10, cap_s=60, jitter=0.2)),
    BackendUnavailable: RetryPolicy(10, Backoff(base_s=5, cap_s=120, jitter=0.2)),
    AnswerTooSlow: RetryPolicy(3, Backoff(base_s=COUNTDOWN_MAX_S, cap_s=COUNTDOWN_MAX_S, jitter=0)),
    # For a day, or a little longer.
    OfferingPaused: RetryPolicy(300, Backoff(base_s=COUNTDOWN_MAX_S, cap_s=COUNTDOWN_MAX_S, jitter=0)),
    SiteAgentError: RetryPolicy(),
}


def policy_for(error: SiteAgentError) -> RetryPolicy:
    return next(POLICIES[kind] for kind in type(error).__mro__ if kind in POLICIES)


class SiteTask(Task):
    """Takes identifiers only as arguments. A task whose error may pass retries itself; Flower shows the retries."""

    throws = (SiteAgentError,)
    Request = "tasks.consumer:SiteRequest"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with logs.about(task=self.name, task_id=str(self.request.id or "")):
            try:
                ids = arguments.check(self.name, self.run, args, kwargs)
                sentry.tag(task=self.name, **ids)
                with logs.about(**ids), starts.counted(self.name, args, self.request):
                    return super().__call__(*args, **kwargs)
            except SoftTimeLimitExceeded:
                self.come_back(
                    OutOfTime("the pass took longer than a task may; what it did stays, the rest goes on")
                )
            except SiteAgentError as error:
                log.error("%s %s: %s", self.name, repr(args)[:ARGUMENTS_SHOWN], error)
                raise

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Queue the task. Events, and so Flower, tell its identifiers; of documents only that there is one."""
        shown = tuple(each if isinstance(each, str) else f"<{type(each).__name__}>" for each in args or ())
        options.setdefault("argsrepr", repr(shown))
        return super().apply_async(args, kwargs, **options)

    def finish(self, report: PassReport) -> dict[str, int]:
        """Log the pass, and retry where something in it may work later. Raises the error that ended the pass."""
        self._log(report)
        error = report.retryable_error
        if error is not None:
            self.come_back(error)
        if report.error is not None:
            raise report.error
        return dict(report.counted())

    @staticmethod
    def _log(report: PassReport) -> None:
        """Log a line for the pass, where it did something or something failed; orders that the policy lets wait are
        logged once, when they are held.
        """
        done = sum(outcome.done and not outcome.action.is_routine for outcome in report.outcomes)
        has_news = done or report.failed or (report.results and report.outcomes)
        results = [f"{count} {result}" for result, count in sorted(report.counted().items())]
        requests, commands = report.effort.requests.total(), report.effort.commands.total()
        log.log(
            logging.INFO if has_news else logging.DEBUG,
            "%s of offering %s: %s%s in %.1f s, %d requests, %d cluster commands",
            report.mode,
            report.offering_name,
            ", ".join(results) or f"{done} actions",
            "".join(f", plan {plan.id} is held" for plan in report.held),
            report.effort.seconds,
            requests,
            commands,
            extra={
                "mode": str(report.mode),
                "actions": done,
                "failed": sum(not outcome.done for outcome in report.outcomes),
                "seconds": round(report.effort.seconds, 3),
                "requests": requests,
                "commands": commands,
            },
        )

    def come_back(self, error: SiteAgentError) -> None:
        """Raise Celery's Retry, or the error itself after the last attempt, and where the next pass comes before a
        retry could. Flower shows both with the reason.
        """
        policy = policy_for(error)
        countdown_s = policy.countdown_s(self.request.retries, random.uniform(-1, 1))  # noqa: S311  (jitter, not a secret)
        # A retry keeps the expiry of its task: for a pass, when beat sends the next one.
        expires = maybe_iso8601(self.request.expires)
        next_try = datetime.now(UTC) + timedelta(seconds=countdown_s)
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
