# SPDX-License-Identifier: MIT
"""Which arguments a task takes: offerings that the configuration has, identifiers by their form, months, options.

Beat, the bridge and the loader send nothing else; but whoever reaches the broker can send any message. A task whose
arguments do not pass does nothing. What passes is a hint only: a task reads Waldur before it acts.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agent.config.model import Mode
from agent.core.account_names import uuid_hex
from agent.core.errors import SiteAgentError
from agent.core.periods import Month
from agent.run.backfill.month import LoadOptions
from tasks import current

RUN_ID = re.compile(r"[0-9a-f]{1,64}")
SHOWN_LETTERS = 8


class ArgumentsRefused(SiteAgentError):
    """A message that no process of this cluster sends."""


def check(
    task: str, run: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, str]:
    """Check what a task is called with, by the names of its parameters. Return the identifiers in it, for the log.
    Raises ArgumentsRefused, and ConfigError for an offering that is not in the configuration of this process.
    """
    try:
        given = inspect.signature(run).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise _refused(task, str(error)) from error
    for name, value in given.items():
        try:
            CHECKS[name](value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _refused(task, f"{name} is {repr(value)[:80]}") from error
    ids = {name.removesuffix("_uuid"): value for name, value in given.items() if name.endswith("_uuid")}
    return {**ids, **({"month": given["month_name"]} if "month_name" in given else {})}


def shown(args: Iterable[Any]) -> str:
    """Return a task's arguments as Flower shows them: the name of the offering, of other uuids the first letters, and
    nothing of documents.
    """
    return ", ".join(filter(None, map(_shown, args)))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return shown(value)
    if not isinstance(value, str):
        return ""
    offering = current.settings().offering(value)
    if offering is not None:
        return offering.name
    kind, _, identifier = value.rpartition(":")
    return f"{kind} {identifier[:SHOWN_LETTERS]}".strip()


def _refused(task: str, problem: str) -> ArgumentsRefused:
    return ArgumentsRefused(
        f"the task {task} is not run: {problem}. Beat, bridge and loader send no such message: look who can reach the "
        "broker, or knows its password; or whether processes of two versions share it"
    )


def _offering(value: Any) -> None:
    current.offering(uuid_hex(value))


def _entries(value: Any) -> None:
    """Check projects and resources of `tasks.membership`."""
    for kind, _, uuid in (entry.partition(":") for entry in value):
        if kind not in ("project", "resource"):
            raise ValueError
        uuid_hex(uuid)


def _run_id(value: Any) -> None:
    if not RUN_ID.fullmatch(value):
        raise ValueError


def _options(value: Any) -> None:
    """Check LoadOptions of this version, each as the default is: a switch, or names."""
    found, usual = LoadOptions.from_json(value), LoadOptions().as_json()
    for name, given in found.as_json().items():
        if type(given) is not type(usual[name]):
            raise TypeError
    if not all(isinstance(account, str) for account in found.accounts):
        raise TypeError


def _document(value: Any) -> None:
    """Check a message of Waldur's, which its task reads strictly, and whose refusal is reported to Waldur."""
    if not isinstance(value, dict):
        raise TypeError


CHECKS: Mapping[str, Callable[[Any], object]] = {
    "offering_uuid": _offering,
    "entries": _entries,
    "request_uuid": uuid_hex,
    "key_uuid": uuid_hex,
    "resource_uuid": uuid_hex,
    "person_uuid": uuid_hex,
    "mode_name": Mode,
    "month_name": Month.parse,
    "run_id": _run_id,
    "options": _options,
    "document": _document,
}
