# SPDX-License-Identifier: MIT
"""`audit`: the journal, asked by user, account, order and time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN, OperatorSite

RUN = ("run", "order_process", "--once")


@pytest.fixture
def done(site: OperatorSite, command: Command) -> tuple[str, list[str]]:
    """A configuration, and two orders that were carried out under it."""
    config = site.configure()
    orders = [site.place("one"), site.place("two")]
    assert command(*RUN, "-c", config).code == 0
    return config, orders


def lines(command: Command, config: str, *words: str) -> list[dict[str, Any]]:
    said = command("audit", "--json", *words, "-c", config)
    assert said.code == 0
    return [json.loads(line) for line in said.out.splitlines()]


def test_one_line_for_each_action_oldest_first(command: Command, done: tuple[str, list[str]]) -> None:
    config, _ = done
    said = command("audit", "-c", config)
    printed = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert len(printed) == len(lines(command, config))
    assert all(line[19:30] == "Z  done    " for line in printed)
    assert [line[:20] for line in printed] == sorted(line[:20] for line in printed)
    assert sum("delete account" in line for line in printed) == 0
    assert sum("approve order" in line for line in printed) == 2


def test_questions(command: Command, done: tuple[str, list[str]]) -> None:
    config, (first, second) = done
    everything = lines(command, config)
    user = next(line["ids"]["user"] for line in everything if "user" in line["ids"])
    assert {line["ids"]["user"] for line in lines(command, config, "--user", user.upper())} == {user}
    assert {line["ids"].get("order") for line in lines(command, config, "--order", first)} == {first}
    of_account = lines(command, config, "--account", "a_two")
    assert {line["ids"]["account"] for line in of_account} == {"a_two"}
    assert {line["ids"].get("order") for line in of_account} == {second}
    assert lines(command, config, "--since", "1h") == everything
    assert lines(command, config, "--until", "1h") == []
    assert lines(command, config, "--since", "2020-01-01", "--until", "2020-01-02T03:00") == []
    assert command("audit", "--user", "nobody", "-c", config).out == "the journal has nothing about that\n"


def test_offerings_that_are_not_in_the_configuration_are_listed_on_demand(
    command: Command, done: tuple[str, list[str]]
) -> None:
    config, _ = done
    ours = lines(command, config)
    (journal,) = (path for path in Path(config).parent.rglob("journal.jsonl"))
    with journal.open("a") as file:
        for offering in ("f" * 32, ""):
            file.write(json.dumps({**ours[-1], "offering": offering, "offering_name": ""}) + "\n")
    assert [line["offering"] for line in lines(command, config)[len(ours) :]] == [""]
    assert [line["offering"] for line in lines(command, config, "--all")[len(ours) :]] == ["f" * 32, ""]
    assert lines(command, config, "--offering", ours[0]["offering"]) == ours


def test_the_commands_are_listed_on_demand(command: Command, done: tuple[str, list[str]]) -> None:
    config, _ = done
    printed = command("audit", "--account", "a_one", "--commands", "-c", config).out
    assert "    $ " in printed
    assert "sacctmgr" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--since", "yesterday"), "'yesterday' is no time; write 2026-11-21"),
        (("--order", "x"), "'x' is not a uuid"),
        (("--offering", UNKNOWN), "is not in"),
    ],
)
def test_questions_that_make_no_sense(
    command: Command, site: OperatorSite, words: tuple[str, ...], sentence: str
) -> None:
    said = command("audit", *words, "-c", site.configure())
    assert said.code == 2
    assert sentence in said.err
