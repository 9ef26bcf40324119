# SPDX-License-Identifier: MIT
"""`console`: serves the page of status behind a login, and lets operators approve held plans; `console passwd` says who
may log in.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from ipaddress import ip_address
from pathlib import Path

import click

from agent.cli import options
from agent.cli.commands.shared import CONSOLE_PORT, parse_address
from agent.cli.output import echo
from agent.cli.web import passwords
from agent.cli.web.roles import Role
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.run.service import configuration


def command(config_file: Path | None, listen: str) -> int:
    settings = _settings(config_file)
    host, port = parse_address(listen or settings.console.listen, CONSOLE_PORT)
    is_safe = settings.console.certificate or settings.console.proxies
    if not is_safe and host != "localhost" and not _is_loopback(host):
        raise click.BadParameter(
            f"{host} is not loopback: passwords would cross the network unencrypted. Set `console.certificate`, or "
            "`console.proxies` for a proxy with TLS",
            param_hint="--listen",
        )
    path = settings.state_dir / passwords.NAME
    if not settings.console.oidc and not passwords.read(path):
        raise SiteAgentError("nobody can log in: `console passwd NAME --role operator` sets a password first")
    return asyncio.run(_serve(settings, host, port))


def passwd(config_file: Path | None, name: str, role: str, remove: bool) -> int:
    path = _settings(config_file).state_dir / passwords.NAME
    logins = passwords.read(path)
    if remove:
        if logins.pop(name, None) is None:
            raise SiteAgentError(f"{name} is not in {path}")
        passwords.write(path, logins)
        echo(f"{name} cannot log in any more")
        return 0
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    try:
        login = passwords.new_login(name, Role(role), password)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    passwords.write(path, {**logins, name: login})
    echo(f"{name} can log in as {role}; {path} has the hash of the password")
    return 0


def _settings(config_file: Path | None) -> Settings:
    """Return the settings without the secrets of offerings: this process has no business with Waldur or a cluster."""
    settings, warnings = configuration.usable(config_file, os.environ, with_logins=False)
    for each in warnings:
        if each.path.startswith("console."):
            echo(str(each), err=True)
    options.set_up(settings)
    return settings


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def _serve(settings: Settings, host: str, port: int) -> int:
    # Imported here: `console passwd` needs no server.
    from agent.cli.web import server

    try:
        running = server.start(settings, host, port)
    except OSError as error:
        raise SiteAgentError(f"nothing can be served at {host}:{port}: {error.strerror or error}") from error
    scheme = "https" if settings.console.certificate else "http"
    echo(f"the console is at {scheme}://{f'[{host}]' if ':' in host else host}:{port}", err=True)
    stopped = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    await stopped.wait()
    running.stop()
    await running.close_all_connections()
    return 0
