# SPDX-License-Identifier: MIT
"""Names and words that another person chose, on an operator's terminal: they steer nothing and begin no line."""

from __future__ import annotations

import io
import json
import logging

import pytest
from rich.table import Table
from rich.text import Text

from agent.cli.console import CleanConsole
from agent.cli.output import echo
from agent.core.printable import printable, printable_json
from agent.observability.logs import ReadableLines
from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite

FORGED = "offering Test SLURM: all is well"
# Clears the screen, sets the title of the window, an 8-bit escape, turns the direction, ends the line in five ways.
HOSTILE = f"x\x1b[2J\x1b]0;title\x07\x9b2J\u202ey\n{FORGED}\r{FORGED}\u2028{FORGED}\x85{FORGED}\x0b{FORGED}"
UNSEEN = set("\x1b\x07\x9b\u202e\r\u2028\x85\x0b")


def assert_harmless(text: str) -> None:
    assert not UNSEEN & set(text)
    assert not [line for line in text.split("\n") if line.casefold().startswith(FORGED.casefold())]


def test_what_was_cleaned_reads_as_one_line() -> None:
    assert (
        printable("a\x1b[2Jb\n c\u202ed\ud800 ok Ä 名 \u200d")
        == "a\\x1b[2Jb  c\\u202ed\\ud800 ok Ä 名 \u200d"
    )
    document = {"name": HOSTILE, "half": "\ud800"}
    text = printable_json(json.dumps(document, ensure_ascii=False))
    assert json.loads(text) == document
    assert_harmless(text)


def test_lines_tables_and_log_lines_are_clean(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE, fg="red")
    stream = io.StringIO()
    table = Table(title=Text(HOSTILE))
    table.add_column("name", overflow="fold")
    table.add_row(Text(HOSTILE, style="bold"))
    table.add_row(HOSTILE)
    out = CleanConsole(file=stream, width=400)
    out.print(table)
    out.print(Text(HOSTILE), soft_wrap=True)
    try:
        raise ValueError(HOSTILE)
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "failed: %s", (HOSTILE,), (type(error), error, None)
        )
    for text in (capsys.readouterr().out, stream.getvalue(), ReadableLines().format(record)):
        assert text.count(FORGED) >= 5
        assert_harmless(text)


def test_commands_print_what_waldur_sends_without_harm(site: OperatorSite, command: Command) -> None:
    """A name, the id of an account and a refusal, in passes that write them into the journal and the state as well."""
    path = site.configure(
        membership_sync_backend="slurm", policy={"max_removed_accounts": 0}, limits_source="waldur"
    )
    for name in ("One", "Two"):
        site.place(name)
    assert command("run", "order_process", "--once", "-c", path).code == 0
    one, two = sorted(site.waldur.site.resources(), key=lambda resource: resource.slug)
    site.waldur.orders.place_terminate(one.uuid)
    site.waldur.site.change("resources", one.uuid, name=HOSTILE)
    site.waldur.site.change("resources", two.uuid, name=HOSTILE, backend_id=HOSTILE, limits={HOSTILE: 5})
    site.place("Three")
    refusal = json.dumps({"detail": HOSTILE})
    site.waldur.inject(Fault(path="approve_by_provider", status=400, body=refusal, times=None,
                             content_type="application/json"))  # fmt: skip
    for words in (
        ("run", "membership_sync", "--once"),
        ("run", "order_process", "--once"),
        ("plan", "membership_sync"),
        ("status",),
        ("audit",),
    ):
        said = command(*words, "-c", path)
        # A log line is JSON here, which has escapes of its own.
        printed = said.out + "\n".join(said.sentences())
        assert FORGED.casefold() in (printed + said.err).casefold(), words
        assert_harmless(printed)
        assert_harmless(command(*words, "--json", "-c", path).out)
    for words in (("plan", "order_process", "--commands"), ("approve",)):
        assert_harmless(command(*words, "-c", path).out)
