# SPDX-License-Identifier: MIT
"""What declarations of commands share: the command itself, and options that several have.

Whatever these modules import, each `--help` and each Tab of a shell waits for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.core.account_names import uuid_hex
from agent.core.modes import Mode
from agent.host import collector

Function = TypeVar("Function", bound=Callable[..., Any])

# The exit code of `--exit-code` when there is something to do, or something differs.
EXIT_CHANGES = 3

# Where metrics are served unless an option says otherwise.
LOOPBACK = "127.0.0.1"
METRICS_PORT = 9464
BRIDGE_METRICS_PORT = 9465
CONSOLE_PORT = 9466
ADDRESS = re.compile(
    r"(?:(\[[0-9a-fA-F:.]+\]|[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*)(?::|$))?(\d{1,5})?"
)

MODE_EPILOG = f"MODE is one of: {', '.join(Mode)}."


class LazyCommand(click.Command):
    """A command whose function is imported when it is called. `body`: `MODULE`, for its function `command`, or
    `MODULE:FUNCTION`.
    """

    def __init__(self, *args: Any, body: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.body = body

    def invoke(self, ctx: click.Context) -> Any:
        module, _, name = self.body.partition(":")
        function = getattr(importlib.import_module(module), name or "command")
        collector.begin()
        return ctx.invoke(function, **ctx.params)


mode_argument = click.argument("mode", metavar="MODE", type=click.Choice([mode.value for mode in Mode]))


def config_option(function: Function) -> Function:
    return click.option(
        "-c",
        "--config",
        "--config-file",
        "config_file",
        type=click.Path(path_type=Path),
        help="Configuration file. Default: $WALDUR_SITE_AGENT_CONFIG, else waldur-site-agent-config.yaml here, "
        "else the one in /etc/waldur/ or /etc/waldur-site-agent/.",
    )(function)


def offering_option(function: Function) -> Function:
    return click.option(
        "--offering",
        "offering_uuid",
        metavar="OFFERING",
        help="This offering only: its name or uuid, or how either begins.",
    )(function)


def json_option(function: Function) -> Function:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")(function)


def exit_code_option(condition: str) -> Callable[[Function], Function]:
    return click.option("--exit-code", is_flag=True, help=f"End with {EXIT_CHANGES} when {condition}.")


def parse_uuid(_context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Return an option's uuid in the spelling that Waldur uses. Raises click's BadParameter."""
    try:
        return uuid_hex(text) if text else None
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a uuid", param=parameter) from error


def parse_address(text: str, port: int) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, `PORT`, `HOST` or `[V6]:PORT`; loopback and `port` where it names none.
    Raises click's BadParameter.
    """
    found = ADDRESS.fullmatch(text)
    if not text or found is None or int(found[2] or port) > 65535:
        raise click.BadParameter(f"{text!r} is no address such as {LOOPBACK}:{port}")
    return (found[1] or LOOPBACK).strip("[]"), int(found[2] or port)
