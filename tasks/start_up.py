# SPDX-License-Identifier: MIT
"""Start a process of the cluster: logs, Sentry, checks that refuse, and recovery after a killed predecessor.

A worker checks the backends of the queues that it serves; beat and Flower check none. An outage of slurmdbd is a
warning: the tasks retry.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from typing import Any, NoReturn

from celery import signals
from kombu import transport as transports
from kombu.utils.functional import maybe_list

import beat_schedule as table
from agent.config.model import Mode, Offering, Problem, Severity
from agent.core.errors import BackendError, SiteAgentError
from agent.observability import apm, logs, sentry
from agent.run import site as sites
from tasks import broker
from tasks.app import app
from tasks.current import modes_of, needs_logins, program, settings

log = logging.getLogger(__name__)

# Of a worker. Beat and bridge read no messages.
CHECKED_TRANSPORTS = {
    "redis": "tasks.consumer:RedisTransport",
    "rediss": "tasks.consumer:RedisTransport",
    "sentinel": "tasks.consumer:SentinelTransport",
}
# In the headers of each message: when it was sent, in seconds since 1970, for the metrics.
QUEUED_AT = "queued_at"


@signals.before_task_publish.connect
def _note_time(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is not None:
        headers[QUEUED_AT] = round(time.time(), 3)


@signals.setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    """Connecting this signal keeps Celery from putting its own handlers on the root logger."""
    logs.set_up(settings().log_level, settings().log_format)
    sentry.set_up(settings())
    if client := apm.set_up(settings()):
        # Imported here: only sites with an APM server have it.
        from elasticapm.contrib.celery import register_exception_tracking, register_instrumentation

        register_exception_tracking(client)
        register_instrumentation(client)
    if settings().log_shipping.enabled and needs_logins(sys.argv[1:]):
        # Imported here: other sites shall not pay for it in each process of the pool.
        from agent.run import log_shipping

        log_shipping.set_up(settings())


@signals.worker_process_shutdown.connect
def _ship_the_last_lines(**_: Any) -> None:
    """The processes of a pool end without Python's own exit."""
    for handler in logging.getLogger().handlers:
        if handler.get_name() == logs.SHIPPER:
            handler.close()


@signals.celeryd_init.connect
def _set_node_name(sender: str, options: dict[str, Any], **_: Any) -> None:
    known = sorted(queue.name for queue in app.conf.task_queues)
    for option in ("queues", "exclude_queues"):
        unknown = sorted(set(maybe_list(options.get(option)) or ()) - set(known))
        if unknown:
            near = [name for name in map(table.queue_name, unknown) if name in known]
            hint = f" (did you mean {', '.join(near)}?)" if near else ""
            _refuse(
                f"worker {sender} does not start: the configuration {settings().source} has no queue "
                f"{', '.join(unknown)}{hint}; its queues are: {', '.join(known)}"
            )
    broker.set_node_name(sender)
    transports.TRANSPORT_ALIASES.update(CHECKED_TRANSPORTS)


@signals.celeryd_after_setup.connect
def _check_worker(sender: str, instance: Any, **_: Any) -> None:
    _check_schedule()
    _warn_without_redis()
    program()
    queues = set(instance.app.amqp.queues.consume_from)
    served = [offering for offering in settings().offerings if table.queue_name(offering.queue) in queues]
    pairs = [(o, mode) for mode in table.TASK_OF for o in served if mode in modes_of(o)]
    problems = [problem for offering, mode in pairs for problem in sites.unusable([offering], mode)]
    wanted = {(offering.path, mode) for offering, mode in pairs if offering.backend_of(mode)}
    stopped = {(problem.path, mode) for problem in problems for mode in problem.stops}
    # No other host takes the tasks of an embedded queue: an offering that cannot be served there stops no other one.
    are_alone = len(served) == 1 or not broker.is_embedded()
    if fatal := _fatal(problems, is_idle=bool(wanted) and wanted == stopped, are_alone=are_alone):
        _refuse(f"worker {sender} does not start: {'; '.join(fatal)}")
    for offering, mode in pairs:
        if (offering.path, mode) in wanted - stopped:
            _log_health(offering, mode)


def _fatal(problems: Sequence[Problem], *, is_idle: bool, are_alone: bool) -> list[str]:
    """Log the problems, and return those that keep a worker from starting: all where it would have nothing to do, else
    the errors, where nothing else would be stopped by them.
    """
    for problem in problems:
        log.log(logging.WARNING if problem.severity is Severity.WARNING else logging.ERROR, "%s", problem)
    return [p.message for p in problems if is_idle or (are_alone and p.severity is Severity.ERROR)]


@signals.beat_init.connect
def _check_beat(**_: Any) -> None:
    _check_schedule()
    _warn_without_redis()


def _warn_without_redis() -> None:
    if not broker.uses_redis() and not broker.is_embedded():
        log.warning(
            "the broker is not Redis: polls run also while a bridge listens, what waits is queued once more with each "
            "period, months of history are loaded with --local only, and locks hold on this host only"
        )


def _check_schedule() -> None:
    app.loader.import_default_modules()
    missing = sorted({slot.task for slot in table.slots(settings())} - set(app.tasks))
    if missing:
        _refuse(f"the beat table names tasks that do not exist: {', '.join(missing)}")


def _log_health(offering: Offering, mode: Mode) -> None:
    """Log the problems of a mode's cluster. None of them ends the worker."""
    try:
        health = sites.connect(settings(), offering, mode).backend.check()
    except BackendError as error:
        log.warning("offering %s: its cluster cannot be checked now: %s", offering.name, error)
    except SiteAgentError as error:
        log.error("offering %s: %s", offering.name, error)
    else:
        for text in health.problems:
            log.error("offering %s: %s", offering.name, text)
        for text in health.warnings:
            log.warning("offering %s: %s", offering.name, text)


def _refuse(sentence: str) -> NoReturn:
    sys.stderr.write(f"{sentence}\n")
    raise SystemExit(2)
