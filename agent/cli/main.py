# SPDX-License-Identifier: MIT
"""The command `manage.py` (installed: `waldur-site-cluster`): finds the sub-command, and prints its errors.

Sub-commands are imported when they are called: `--help` and `--version` answer at once.
"""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Mapping
from typing import NoReturn

import click

from agent import __version__
from agent.cli import arguments
from agent.cli.output import echo
from agent.core.errors import ConfigError, SiteAgentError

log = logging.getLogger(__name__)

PROGRAM = "waldur-site-cluster"
TAKING_TOKENS = "historical-usage"

COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("agent.cli.init", "Write a first configuration file: asks Waldur and this host."),
    "unit-files": ("agent.cli.unit_files", "Write the systemd units of this installation into a folder."),
    "config-check": (
        "agent.cli.config_check",
        "Check the configuration: every problem at once, unknown keys too.",
    ),
    "config-schema": (
        "agent.cli.config_schema",
        "Print a JSON Schema of the configuration, for editors.",
    ),
    "run": ("agent.cli.run", "Run one pass of a mode here and now, without a broker."),
    "plan": ("agent.cli.plan", "Show what a pass would do; change nothing."),
    "apply": ("agent.cli.apply", "Carry out a plan from a file, if it is still the same plan."),
    "drift": ("agent.cli.drift", "Report how the cluster differs from what Waldur wants; change nothing."),
    "status": ("agent.cli.status", "Show passes, stuck orders, held plans, queues and workers."),
    "doctor": ("agent.cli.doctor", "Check host, broker, workers, beat and offerings; say what to do."),
    "diagnose-account": (
        "agent.cli.diagnose_account",
        "Compare one account with Waldur, field by field; print the commands that correct it.",
    ),
    "explain": ("agent.cli.explain", "Say why a person can, or cannot, use an allocation."),
    "diagnostics": ("agent.cli.diagnostics", "Check each offering: Waldur, rights, components, SLURM."),
    "approve": ("agent.cli.approve", "List the plans that wait for a person, or approve one."),
    "pause": ("agent.cli.pause", "Pause an offering, or end the pause."),
    "rebuild": (
        "agent.cli.rebuild",
        "Make accounts again that the cluster has lost, after an approval.",
    ),
    "forget": (
        "agent.cli.forget",
        "Delete remembered facts, so that they are read again.",
    ),
    "audit": ("agent.cli.audit", "Show what was done to whom, why, and what came of it."),
    "usage": ("agent.cli.usage.usage", "Show what accounts have used, as a table or a page with charts."),
    "usage-check": (
        "agent.cli.usage.usage_check",
        "Count a month in every way: would bills move, and does the cluster agree?",
    ),
    "load-components": (
        "agent.cli.load_components",
        "Bring the configured components into the offerings in Waldur.",
    ),
    "historical-usage": (
        "agent.cli.backfill.historical_usage",
        "Load usage of past months into Waldur, with a staff token.",
    ),
    "create-homedirs": (
        "agent.cli.create_homedirs",
        "Make missing home directories of the offerings' users, and set their quotas.",
    ),
    "metrics": (
        "agent.cli.metrics",
        "Print or serve the metrics of passes, held plans and queues for Prometheus.",
    ),
    "healthz": (
        "agent.cli.healthz",
        "Check for probes whether worker, beat and bridge of this host are alive.",
    ),
    "cluster": (
        "agent.cli.cluster",
        "Run broker, worker, beat and bridge of a one-machine site in the foreground.",
    ),
    "bridge": ("agent.cli.bridge", "Listen to Waldur's events for all offerings, and queue tasks."),
    "events": ("agent.cli.events", "Look at messages that could not be understood, and try them again."),
    "simulate": ("agent.cli.simulate", "Run a simulated Waldur to try things against."),
    "demo": ("agent.cli.demo", "Run the whole system on embedded parts and watch orders travel."),
}


class LazyGroup(click.Group):
    """Imports a sub-command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
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
    sys.exit(run(words))


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
