# SPDX-License-Identifier: MIT
"""The base of all tasks: log a pass, and retry it by the error that it ended with."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Task
from celery.exceptions import SoftTimeLimitExceeded
from celery.utils.time import maybe_iso8601, maybe_make_aware

import beat_schedule as table
from agent.core.errors import SiteAgentError
from agent.core.events import QueueUnavailable
from agent.core.retries import policy_for
from agent.observability import logs, sentry
from agent.run.results import PassReport
from tasks import arguments, current
from tasks.limits import STARTS_AT_MOST
from tasks.queue import broker, refusals

log = logging.getLogger(__name__)

# Letters; a message of a periodic policy may be long.
LOGGED_LETTERS = 500


class OutOfTime(SiteAgentError):
    """The soft time limit was reached."""

    retryable = True


class EndsWorkers(SiteAgentError):
    """A task that no worker has lived to end."""


class SiteTask(Task):
    """Takes identifiers only as arguments. A task whose error may pass retries itself; Flower shows the retries."""

    throws = (SiteAgentError,)
    Request = "tasks.queue.consumer:SiteRequest"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with logs.about(task=self.name, task_id=str(self.request.id or "")):
            try:
                ids = arguments.check(self.name, self.run, args, kwargs)
                sentry.tag(task=self.name, **ids)
                with logs.about(**ids), self._counted(args):
                    return super().__call__(*args, **kwargs)
            except SoftTimeLimitExceeded:
                self.come_back(
                    OutOfTime("the pass took longer than a task may; what it did stays, the rest goes on")
                )
            except QueueUnavailable as error:
                self.come_back(error)
            except SiteAgentError as error:
                log.error("%s %s: %s", self.name, repr(args)[:LOGGED_LETTERS], error)
                raise

    @contextmanager
    def _counted(self, args: tuple[Any, ...]) -> Iterator[None]:
        """Count this start until the body ends, well or with an error: a task that ends each worker (killed for its
        memory, a crash of a library) would come back for ever. Raises EndsWorkers when it was begun STARTS_AT_MOST
        times before and never ended.

        Whatever the broker says of a message: one that it hands out again may have waited in a worker that was killed,
        and was not begun there. What was not handed out by a broker is not counted.
        """
        if not self.request.delivery_info or self.request.is_eager:
            yield
            return
        queue, task_id = broker.queue(), self.request.id
        if queue.count_start(task_id) > STARTS_AT_MOST:
            body = json.dumps({"task": self.name, "id": task_id, "args": args}).encode()
            reason = f"{self.name} was begun {STARTS_AT_MOST} times and ended its worker each time"
            kept = refusals.keep(str(self.request.delivery_info.get("routing_key")), body, reason)
            raise EndsWorkers(
                f"{reason}, so it is not begun again: look for the kernel's OOM killer or a crash at these times; the "
                f"next poll does the same work; {kept}"
            )
        try:
            yield
        finally:
            queue.forget(f"begun:{task_id}")

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Queue the task. Celery's events, and so Flower, show its arguments as `arguments.shown` has them."""
        options.setdefault("argsrepr", arguments.shown(args or ()))
        return super().apply_async(args, kwargs, **options)

    @contextmanager
    def at_work(self, key: str, *, part: str = "", is_poll: bool = False) -> Iterator[bool]:
        """Be at work on a key for the body. Yields False where another task is, which then sends this one once more;
        not a poll, which that one makes unnecessary, unless it is about a part only. `part`: the key of such a one.
        """
        delivery = self.request.delivery_info or {}
        again = {
            "task": self.name,
            "args": list(self.request.args or ()),
            "queue": delivery.get("routing_key"),
            "priority": delivery.get("priority"),
        }
        with broker.queue().at_work(key, again, part=part, is_poll=is_poll) as is_ours:
            if not is_ours:  # it ends here, and is no retry any more that another failure could be left to
                broker.queue().end_retry(part or key, str(self.request.id))
            yield is_ours

    def finish(self, report: PassReport, key: str = "") -> dict[str, int]:
        """Log the pass, and retry where something in it may work later; of several tasks about one key that fail only
        the first one does. Raises the error that ended the pass.
        """
        error = report.retryable_error
        if key and error is None:
            broker.queue().end_retry(key, str(self.request.id))
        elif key and not broker.queue().is_first_to_retry(key, str(self.request.id)):
            log.info("%s: the retry is left to the task that is queued already: %s", key, error)
            return dict(report.counted())
        self._log(report)
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


def enqueue(
    task: SiteTask, name: str, args: tuple[Any, ...], priority: int, *, about: Sequence[str] = ()
) -> bool:
    """Queue a task for the head node of the offering, its first argument; False when one of that name waits. `about`:
    what it is shown with, besides its arguments. Raises ConfigError when the offering is not ours, QueueUnavailable,
    and what kombu raises.
    """
    queue, urgency = table.queue_name(current.offering(args[0]).queue), broker.here().priority(priority)
    options = {"queue": queue, "priority": urgency, "argsrepr": arguments.shown([*args, *about])}
    return broker.queue().ask(name, lambda: task.apply_async(args, **options))
