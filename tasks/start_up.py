# SPDX-License-Identifier: MIT
"""Start a process of the cluster: logs, Sentry, and checks that refuse. tasks/sites.py has those of a worker."""

from __future__ import annotations

import logging
import sys
from typing import Any, NoReturn

from celery import signals
from kombu import transport as transports
from kombu.utils.functional import maybe_list

import beat_schedule as table
from agent.observability import apm, logs, sentry
from tasks.app import app
from tasks.current import needs_logins, settings
from tasks.queue import broker, kinds

log = logging.getLogger(__name__)


@signals.setup_logging.connect
def _set_up_logging(**_: Any) -> None:
    """Connecting this signal keeps Celery from putting its own handlers on the root logger."""
    logs.set_up(settings().log_level, settings().log_format, on_stdout=settings().logs_on_stdout)
    sentry.set_up(settings())
    if client := apm.set_up(settings()):
        # Imported here: only sites with an APM server have it.
        from elasticapm.contrib.celery import register_exception_tracking, register_instrumentation

        register_exception_tracking(client)
        register_instrumentation(client)
    if settings().log_shipping.enabled and needs_logins(sys.argv[1:]):
        # Imported here: other sites shall not pay for it in each process of the pool.
        from agent.run.service import log_shipping

        log_shipping.set_up(settings())


@signals.worker_process_shutdown.connect
def _ship_the_last_lines(**_: Any) -> None:
    """Send the lines that wait: the processes of a pool end without Python's own exit."""
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
            refuse(
                f"worker {sender} does not start: the configuration {settings().source} has no queue "
                f"{', '.join(unknown)}{hint}; its queues are: {', '.join(known)}"
            )
    broker.set_node_name(sender)
    # Beat and bridge read no messages.
    transports.TRANSPORT_ALIASES.update(kinds.kind_of(app.conf.broker_url).transports)


@signals.celeryd_after_setup.connect
@signals.beat_init.connect
def _check_schedule(**_: Any) -> None:
    app.loader.import_default_modules()
    missing = sorted({slot.task for slot in table.slots(settings())} - set(app.tasks))
    if missing:
        refuse(f"the beat table names tasks that do not exist: {', '.join(missing)}")
    if lacks := kinds.kind_of(app.conf.broker_url).lacks:
        log.warning(
            "%s: polls run also while a bridge listens, what waits is queued once more with each period, months of "
            "history are loaded with --local only, and locks hold on this host only",
            lacks,
        )


def refuse(sentence: str) -> NoReturn:
    """End this process with a sentence."""
    sys.stderr.write(f"{sentence}\n")
    raise SystemExit(2)
