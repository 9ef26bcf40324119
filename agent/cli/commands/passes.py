# SPDX-License-Identifier: MIT
"""Commands for passes and what they remember: the configuration, plans, approvals, pauses."""

from __future__ import annotations

from pathlib import Path

import click

from agent.cli.commands.shared import (
    MODE_EPILOG,
    LazyCommand,
    config_option,
    exit_code_option,
    json_option,
    mode_argument,
    offering_option,
)
from agent.cli.moments import DURATION

# The kinds of `agent.state.forget`, which opens databases.
FORGETTABLE = (
    "finalised-usage",
    "hierarchy-names",
    "homes",
    "listings",
    "live-jobs",
    "named-accounts",
    "project-directories",
    "refused-months",
    "unreported-usage",
)


@click.command(
    cls=LazyCommand,
    body="agent.cli.config_check",
    short_help="Check the configuration: every problem at once, unknown keys too.",
)
@config_option
@json_option
def config_check() -> None:
    """Check the configuration file and the environment. All problems are shown at once; exit code 2 on errors."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.config_schema",
    short_help="Print a JSON Schema of the configuration, for editors.",
)
def config_schema() -> None:
    """Print a JSON Schema of the configuration, with the keys of the backends that are installed here. Editors show its
    descriptions and mark wrong keys where the first line of a file is `# yaml-language-server: $schema=FILE`. It wants
    plain numbers, true and false; the agent takes them in quotes too, and `config-check` finds more.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.run",
    short_help="Run one pass of a mode here and now, without a broker.",
    epilog=MODE_EPILOG,
)
@mode_argument
@click.option(
    "--once", is_flag=True, help="Required: passes that repeat are the business of beat and the workers."
)
@config_option
@offering_option
@json_option
def run() -> None:
    """Run one pass of MODE in this process, without a broker. Exit code 1 when something needs a look, 2 when
    no offering has a backend for MODE.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.plan",
    short_help="Show what a pass would do; change nothing.",
    epilog=MODE_EPILOG,
)
@mode_argument
@config_option
@offering_option
@click.option("--resource", "resource_name", metavar="RESOURCE",
              help="This resource only: its account, name, slug or uuid, or how one begins. For membership_sync; with "
              "--offering where there are several.")  # fmt: skip
@json_option
@click.option("--commands", "as_commands", is_flag=True, help="Print the cluster commands that would be run.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE",
              help="Write the plan of one offering to a file, for `apply FILE`.")  # fmt: skip
@exit_code_option("there is something to do")
def plan() -> None:
    """Show what a pass of MODE would do. Reads Waldur and the cluster, changes neither."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.apply",
    short_help="Carry out a plan from a file, if it is still the same plan.",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@config_option
@json_option
def apply() -> None:
    """Carry out the plan in FILE, which `plan --out` wrote. Refused when the cluster or Waldur moved since."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.drift",
    short_help="Report how the cluster differs from what Waldur wants; change nothing.",
)
@config_option
@offering_option
@json_option
@exit_code_option("something differs")
def drift() -> None:
    """Report how the cluster differs from what Waldur wants, in every mode. Reads both, changes neither."""


@click.command(
    cls=LazyCommand,
    body="agent.cli.approve",
    short_help="List the plans that wait for a person, or approve one.",
)
@click.argument("plan_id", metavar="[PLAN-ID]", required=False)
@config_option
@click.option("--for", "lasts", type=DURATION, default="24h", show_default=True,
              help="How long the approval lasts: 30m, 24h, 2d.")  # fmt: skip
@click.option("--reason", default="", help="Why; the journal has it.")
@click.option("--revoke", is_flag=True, help="Take an approval back.")
@click.option(
    "--all-lines", is_flag=True, help="Show every action of the plans, or of one, and approve nothing."
)
@json_option
def approve() -> None:
    """List the plans that are held, or approve one: the actions that it shows. The next pass carries out those of them
    that are still wanted then, and nothing else.
    """


@click.command(cls=LazyCommand, body="agent.cli.pause", short_help="Pause an offering, or end the pause.")
@click.argument("offering_uuid", metavar="OFFERING")
@config_option
@click.option("--off", is_flag=True, help="End the pause.")
@click.option("--reason", default="", help="Why; `status` shows it.")
@click.option(
    "--for", "lasts", type=DURATION, help="End it by itself after so long: 2h, 3d. Default: it lasts."
)
def pause() -> None:
    """Pause OFFERING (its name or uuid): its passes look and plan, and change nothing. Holds for all workers of this
    head node.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.rebuild",
    short_help="Make accounts again that the cluster has lost, after an approval.",
)
@config_option
@offering_option
@json_option
def rebuild() -> None:
    """Make accounts again that Waldur names and the cluster has lost, after its database was emptied for example.

    The first call shows the plan and writes it down; `approve` releases it, and the next call carries it out. Limits
    and members are those that Waldur has now. What stands is left alone. Exit code 1 when something needs a look.
    """


@click.command(
    cls=LazyCommand,
    body="agent.cli.forget",
    short_help="Delete remembered facts, so that they are read again.",
)
@click.argument("what", metavar="WHAT", type=click.Choice(FORGETTABLE))
@config_option
@offering_option
def forget() -> None:
    """Forget one kind of what is remembered, so that it is asked or done once more. WHAT is one of:

    homes: whose home was made and whose quota set. project-directories: which folders were made. listings: that Waldur
    had a listing of service or course accounts.
    refused-months: closed months that Waldur did not take. live-jobs: the jobs that explain a decrease of usage.
    finalised-usage: sums of jobs that have ended; the next report counts the months in full.
    named-accounts: which accounts the offering names and reports; until its next pass no member is removed on its
    cluster.
    hierarchy-names: which accounts stand for projects and customers; those with another slug in Waldur move.
    unreported-usage: last usage of ended resources that was not reported to Waldur, once it is put right there.
    """


@click.group(short_help="Look at messages that could not be understood, and try them again.")
def events() -> None:
    """Look at what became of Waldur's events."""


@events.group("dead-letters")
def dead_letters() -> None:
    """List or replay messages that could not be understood. The bridge keeps them in its state folder;
    where that is not the one of the configuration, name it with WALDUR_SITE_AGENT_STATE_DIR.
    """


@dead_letters.command("list", cls=LazyCommand, body="agent.cli.events:list_command")
@config_option
@json_option
def list_command() -> None:
    """Show the dead letters, oldest first."""


@dead_letters.command("replay", cls=LazyCommand, body="agent.cli.events:replay_command")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--drop", is_flag=True, help="Throw them away instead.")
@config_option
def replay_command() -> None:
    """Queue what these messages ask for, as if they came now; how an ID begins is enough. What can be understood is
    removed from the dead letters. Exit code 1 when some still cannot.
    """
