# SPDX-License-Identifier: MIT
"""`events dead-letters`: list messages that the bridge could not understand, and try them again."""

from __future__ import annotations

import os
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from agent.bridge.dead_letters import DeadLetters
from agent.bridge.decode import Undecodable
from agent.bridge.dispatcher import replay
from agent.cli.console import console
from agent.cli.options import number, one_meant, print_json, read_settings
from agent.cli.output import echo
from agent.config import environment
from agent.core.errors import ConfigError
from agent.state.dead_letters import DeadLetter

BODY_SHOWN = 200


def list_command(config_file: Path | None, as_json: bool) -> int:
    found = DeadLetters(read_settings(config_file).state_dir).all()
    if as_json:
        document = [
            {
                "id": letter.id,
                "time": letter.time,
                "offering": letter.offering_uuid,
                "source": letter.source,
                "reason": letter.reason,
                "size": letter.size,
                "body": letter.body,
            }
            for letter in found
        ]
        print_json({"dead_letters": document})
        return 0
    if found:
        table = Table("id", "time", "offering", "bytes", "reason", "body")
        for letter in found:
            cells = (letter.id, letter.time, letter.offering_uuid, str(letter.size), letter.reason)
            table.add_row(*map(Text, cells), Text(letter.body[:BODY_SHOWN]))
        console().print(table)
    echo(number(len(found), "dead letter"))
    return 0


def replay_command(ids: tuple[str, ...], everything: bool, drop: bool, config_file: Path | None) -> int:
    if bool(ids) == everything:
        raise click.UsageError("name the dead letters by their ids, or give --all")
    if config_file is not None:
        os.environ[environment.CONFIG] = str(config_file.absolute())
    letters = DeadLetters(read_settings(config_file).state_dir)
    known = letters.all()
    named = {each: one_meant(each, known, lambda letter: letter.id, what="dead letters") for each in ids}
    if unknown := [each for each, letter in named.items() if letter is None]:
        raise ConfigError(f"no dead letter {', '.join(unknown)}")
    selected = [letter for letter in known if everything or letter in named.values()]
    done = {letter.id for letter in selected if drop or _replay(letter)}
    letters.take(lambda letter: letter.id in done)
    echo(f"{number(len(done), 'dead letter')} {'dropped' if drop else 'replayed'}")
    return 0 if len(done) == len(selected) else 1


def _replay(letter: DeadLetter) -> bool:
    """Queue what one dead letter asks for; False, with a line on stderr, where it still cannot be understood."""
    # Imported here: Celery reads its settings from the file that the variable names.
    from tasks.events import TaskQueue

    try:
        jobs = replay(letter, TaskQueue())
    except (Undecodable, ConfigError) as error:
        echo(f"{letter.id}: still not understood: {error}", fg="red", err=True)
        return False
    echo(f"{letter.id}: {', '.join(job.kind for job in jobs) or 'nothing to be done'}")
    return True
