# SPDX-License-Identifier: MIT
"""Log lines: one JSON object each for machines, one readable line each for a terminal. On stderr, in UTC.

The JSON keys are those that sites know: event, level, logger, timestamp, exception, and what a record adds.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from agent.core.printable import printable

# These print whole URLs at DEBUG, tokens in queries included; or a line for each task that found nothing to do.
QUIET = (
    "urllib3", "requests", "stomp", "paho", "kombu", "amqp", "asyncio", "tornado.access",
    "celery.worker.strategy", "celery.app.trace", "celery.beat",
)  # fmt: skip
# Its warnings are repeats, which agent.waldur tells of itself, in one line without the query.
QUIETER = "urllib3.connectionpool"


# The handler that `log_shipping` adds.
SHIPPER = "log_shipping"
# The uuid of the offering that the lines of now are about, for `log_shipping`; empty outside of tasks.
offering_of_lines: ContextVar[str] = ContextVar("offering of the lines", default="")


@contextmanager
def about(offering_uuid: str) -> Iterator[None]:
    """Mark the lines that are logged in the body as those of one offering."""
    token = offering_of_lines.set(offering_uuid)
    try:
        yield
    finally:
        offering_of_lines.reset(token)


class JsonLines(JsonFormatter):
    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        log_data["event"] = log_data.pop("message", record.getMessage())
        log_data["level"] = record.levelname.lower()
        log_data["logger"] = record.name
        log_data["timestamp"] = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        if "exc_info" in log_data:
            log_data["exception"] = log_data.pop("exc_info")


class ReadableLines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%SZ")
        self.converter = time.gmtime  # UTC, as the zone of every line says

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's own name)
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    """Return the lines of a traceback so that none looks like a line of the log."""
    return "\n".join(f"    {printable(line)}" for line in text.split("\n"))


def set_up(level: str) -> None:
    """Replace the root logger's handlers. A terminal gets readable lines, everything else JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ReadableLines() if sys.stderr.isatty() else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.getLogger(QUIETER).setLevel(max(logging.ERROR, root.level))
    logging.captureWarnings(True)
