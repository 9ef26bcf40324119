# SPDX-License-Identifier: MIT
"""The command `manage.py` (installed: `waldur-site-cluster`): finds the sub-command, and prints its errors.

What carries a sub-command out is imported when it is called: `--help` and Tab answer at once.
"""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from agent import __version__
from agent.cli import arguments
from agent.cli.commands import looks, passes, services
from agent.cli.output import echo
from agent.core.errors import ConfigError, SiteAgentError
from agent.host import collector

log = logging.getLogger(__name__)

PROGRAM = "waldur-site-cluster"
TAKING_TOKENS = "historical-usage"

# In the order of `--help`.
COMMANDS: Mapping[str, click.Command] = {
    str(command.name): command
    for command in (
        services.init,
        services.unit_files,
        passes.config_check,
        passes.config_schema,
        passes.run,
        passes.plan,
        passes.apply,
        passes.drift,
        looks.status,
        looks.doctor,
        looks.diagnose_account,
        looks.explain,
        looks.diagnostics,
        services.console,
        passes.approve,
        passes.pause,
        passes.rebuild,
        passes.forget,
        looks.audit,
        looks.usage,
        looks.usage_check,
        services.load_components,
        services.historical_usage,
        services.create_homedirs,
        looks.metrics,
        looks.healthz,
        services.cluster,
        services.bridge,
        passes.events,
        services.simulate,
        services.demo,
    )
}


class InOrder(click.Group):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=InOrder,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Site agent for Waldur: makes an HPC cluster agree with what was ordered, and reports what was used.

    The cluster itself runs under Celery: `celery -A tasks worker`, `celery -A tasks beat`,
    `celery -A tasks flower`, with WALDUR_SITE_AGENT_CONFIG naming the configuration file.
    """


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    words = sys.argv[1:]
    if words[:1] == [TAKING_TOKENS]:
        arguments.blank_typed(words)
    carry_out(words)


def carry_out(
    words: list[str], command: click.Command = cli, name: str = "", *, config_error: int = 2
) -> NoReturn:
    """Run one command line as `run` does, as the work of this process, and end it with its exit code."""
    collector.rest()
    code = run(words, command, name, config_error=config_error)
    gc.freeze()  # Python's end looks for garbage, too
    sys.exit(code)


def run(words: list[str], command: click.Command = cli, name: str = "", *, config_error: int = 2) -> int:
    """Run one command line and return its exit code; of one command where that is given, which `name` names.
    `config_error`: the code of a wrong configuration.
    """
    called = os.path.basename(sys.argv[0])
    program = name or (called if called == PROGRAM else "manage.py")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names that the locale cannot print end no command
    try:
        code = command.main(words, prog_name=program, standalone_mode=False)
    except click.exceptions.Abort:
        echo("stopped", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ConfigError as error:
        echo(*str(error).split("\n"), err=True)
        return config_error
    except SiteAgentError as error:
        echo(f"error: {error}", err=True)
        return 1
    except BrokenPipeError:
        # Whoever read our output has seen enough (`| head`): end quietly, also in the flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception:
        log.exception("internal error of the agent; please report it with the lines below")
        return 1
    return code if isinstance(code, int) else 0
