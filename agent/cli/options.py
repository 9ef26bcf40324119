# SPDX-License-Identifier: MIT
"""What options of several commands mean (configuration file, offerings), and their outputs: JSON, error lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar

import click

from agent.cli.output import echo
from agent.config import load
from agent.config.findings import Findings
from agent.config.model import Mode, Offering, Settings
from agent.config.secret import Secret
from agent.config.sources import secret_in
from agent.core import choice
from agent.core.errors import ConfigError, SiteAgentError, by_cause
from agent.core.printable import printable_json, shortlist
from agent.observability import apm, logs, sentry

Found = TypeVar("Found")

# Modes that change the cluster, and so can compare it with what Waldur wants.
STEERING = (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC)


def read_settings(config_file: Path | None) -> Settings:
    """Return the settings, with logs and Sentry set up as they say: for commands that start no backend, and load none.
    What a backend finds wrong with its own keys is not asked; `settings.load_settings` does. Raises ConfigError.
    """
    settings = load.require(config_file, os.environ)
    set_up(settings)
    return settings


def set_up(settings: Settings) -> None:
    """Send log lines and errors where the settings say."""
    logs.set_up(settings.log_level, settings.log_format, on_stdout=settings.logs_on_stdout)
    sentry.set_up(settings)
    apm.set_up(settings)


def select_offerings(settings: Settings, name: str | None) -> list[Offering]:
    """Return the offering of `--offering`, or all. Raises ConfigError, and click's BadParameter for a name that
    could be several.
    """
    if name is None:
        return list(settings.offerings)
    found = choice.meant(name, settings.offerings, lambda each: each.uuid, lambda each: each.name)
    known = names_of(found or settings.offerings)
    if not found:
        raise ConfigError(f"offering {name} is not in {settings.source}, which has: {known}")
    if len(found) > 1:
        raise click.BadParameter(f"{name!r} could be several: {known}", param_hint="--offering")
    return found


def one_meant(
    wanted: str, things: Iterable[Found], id_of: Callable[[Found], str], *, what: str
) -> Found | None:
    """Return the thing with this id, or the one whose id begins so; None where there is none. `what`: the word for
    several of them. Raises click's BadParameter where several begin so.
    """
    found = choice.meant(wanted, things, id_of)
    if len(found) > 1:
        known = shortlist(map(id_of, found), choice.SHOWN)
        raise click.BadParameter(f"{wanted!r} could be several {what}: {known}")
    return found[0] if found else None


def names_of(offerings: Iterable[Offering]) -> str:
    """Return names and uuids, for an error to show."""
    return shortlist((f"{each.name} ({each.uuid})" for each in offerings), choice.SHOWN) or "none"


def served_offerings(settings: Settings, offering_name: str | None, mode: Mode) -> list[Offering]:
    """Return those of them that have a backend for the mode; say so where none has."""
    served = [each for each in select_offerings(settings, offering_name) if each.backend_of(mode)]
    if not served:
        echo(f"no offering here has a backend for {mode}: is its key in the configuration?", err=True)
    return served


def offerings_with_members(settings: Settings, offering_name: str | None, without: str) -> list[Offering]:
    """Return those of them that have a backend for members; say of the others what they are `without`."""
    chosen = select_offerings(settings, offering_name)
    served = [each for each in chosen if each.backend_of(Mode.MEMBERSHIP_SYNC)]
    echo(*(f"{o.name}: {without}: it has no membership_sync_backend" for o in chosen if o not in served))
    return served


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Found]):
    """What a command found of one offering, or the error that kept it from that."""

    offering: Offering
    found: Found | None = None
    error: SiteAgentError | None = None

    def as_json(self) -> dict[str, Any]:
        error = str(self.error) if self.error else None
        return {"offering": self.offering.uuid, "name": self.offering.name, "error": error}


def of_each(offerings: Iterable[Offering], work: Callable[[Offering], Found]) -> list[Outcome[Found]]:
    """Do something with each offering. What stops one stops no other."""
    outcomes: list[Outcome[Found]] = []
    for offering in offerings:
        try:
            outcomes.append(Outcome(offering, work(offering)))
        except SiteAgentError as error:
            outcomes.append(Outcome(offering, error=error))
    return outcomes


def token_in(file: Path, option: str, what: str) -> Secret:
    """Return the token in a file that an option names; say what is to be said of the file. Raises SiteAgentError."""
    findings = Findings()
    token = secret_in(file, option, findings)
    echo(*map(str, findings.problems), err=True)
    if token is None:
        raise SiteAgentError(f"the {what} cannot be read: see above")
    return Secret(token)


def print_json(document: Any) -> None:
    click.echo(  # noqa: TID251  (JSON keeps its own escapes)
        printable_json(json.dumps(document, ensure_ascii=False, default=str))
    )


def print_errors(errors: Iterable[tuple[Offering, SiteAgentError | None]]) -> None:
    """Print on stderr what stopped offerings, one line for each cause; the others went on."""
    stopped = ((offering.name, error) for offering, error in errors if error is not None)
    for names, error in by_cause(stopped):
        echo(f"error: {names}: {error}", fg="red", err=True)


def amount_text(amount: Decimal | None) -> str | None:
    """Return an amount for JSON, as it is sent to Waldur; None for what is unknown."""
    return None if amount is None else f"{amount:f}"


def number(count: int, noun: str) -> str:
    ending = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"
