# SPDX-License-Identifier: MIT
"""Log lines: one JSON object each for machines, one readable line each for a terminal. In UTC, on stderr; services of
`waldur_site_agent` have nothing else to print, and log on stdout as the reference does: old units find the log there.

The JSON keys are those that sites know: event, level, logger, timestamp, exception, and what a record adds; and what
the lines are about (`about`): offering, mode, order, resource, task and its id.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from agent.core.printable import printable

# These print whole URLs at DEBUG, tokens in queries included; or a line for each task that found nothing to do.
QUIET = (
    "urllib3", "requests", "stomp", "paho", "kombu", "amqp", "asyncio", "tornado.access",
    "celery.worker.strategy", "celery.app.trace", "celery.beat",
)  # fmt: skip
# Its warnings are repeats, which agent.waldur logs itself, in one line without the query.
QUIETER = "urllib3.connectionpool"


# What `log_format` may be.
JSON, TEXT = "json", "text"
# The handler that `log_shipping` adds.
SHIPPER = "log_shipping"
_context: ContextVar[Mapping[str, str]] = ContextVar("what the lines are about", default=MappingProxyType({}))


@contextmanager
def about(**fields: str | None) -> Iterator[None]:
    """Mark the lines that are logged in the body: with the offering, order, resource, task and the like that they are
    about. Empty fields are omitted; what an outer block says holds on.
    """
    given = {name: value for name, value in fields.items() if value}
    token = _context.set({**_context.get(), **given})
    try:
        yield
    finally:
        _context.reset(token)


def context() -> Mapping[str, str]:
    """Return what the lines of now are about, by field; nothing outside of tasks and passes."""
    return _context.get()


class JsonLines(JsonFormatter):
    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        super().add_fields(log_data, record, message_dict)
        for name, value in context().items():
            log_data.setdefault(name, value)
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
        line = super().formatMessage(record)
        known = {name: value for name, value in context().items() if value not in record.message}
        return f"{line} [{', '.join(f'{k} {v}' for k, v in known.items())}]" if known else line

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    """Return the lines of a traceback so that none looks like a line of the log."""
    return "\n".join(f"    {printable(line)}" for line in text.split("\n"))


def set_up(level: str, form: str = "", *, on_stdout: bool = False) -> None:
    """Replace the root logger's handlers. `form`: `json` or `text`; empty: a terminal gets readable lines, everything
    else JSON.
    """
    stream = sys.stdout if on_stdout else sys.stderr
    handler = logging.StreamHandler(stream)
    is_readable = form == TEXT if form else stream.isatty()
    handler.setFormatter(ReadableLines() if is_readable else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.getLogger(QUIETER).setLevel(max(logging.ERROR, root.level))
    logging.captureWarnings(True)
