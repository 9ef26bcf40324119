# SPDX-License-Identifier: MIT
"""The journal: whole lines whoever writes at once, bounded files, and a query over all of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import Action, AddMember, CreateAccount, RemoveMember
from agent.core.errors import BackendUnavailable
from agent.core.plans import Outcome
from agent.run.site import Site
from agent.state import journal
from agent.state.journal import Query
from tests.agent.run.gate.conftest import World, world

__all__ = ["world"]

pytestmark = pytest.mark.safety

ORDER = "0123456789abcdef0123456789abcdef"
JOIN = AddMember(account="a_one", user="ann", reason=f"Create order {ORDER}")
LEAVE = RemoveMember(account="a_one", user="bob", reason="resource r")
MAKE = CreateAccount(account="a_new", parent="p_one")


@dataclass
class Named:
    """As much of an offering and a backend as the journal wants to know."""

    uuid: str = "f" * 32
    name: str = "Test"
    cluster: str = "c1"


def place(folder: Path) -> Site:
    return Site(Named(), None, Named(), folder)  # type: ignore[arg-type]


def record(site: Site, *actions: Action, error: bool = False) -> None:
    failure = BackendUnavailable("the database does not answer") if error else None
    outcomes = [
        Outcome(action, failure, ("sacctmgr -i x", "docker -H ssh://me:secret@host y"), 0.5)
        for action in actions
    ]
    journal.record(site, Mode.MEMBERSHIP_SYNC, outcomes)


def texts(site: Site, query: Query = Query()) -> list[str]:
    return [line["action"]["text"] for line in journal.read(site.state_dir, query)]


def test_a_line_says_what_why_when_how_and_what_came_of_it(tmp_path: Path) -> None:
    site = place(tmp_path / "state")
    before = datetime.now(UTC) - timedelta(seconds=1)  # it may be written in whole seconds
    record(site, JOIN, error=True)
    (line,) = journal.read(site.state_dir)
    assert before < datetime.fromisoformat(line["time"]) <= datetime.now(UTC)
    assert (line["offering"], line["cluster"], line["mode"]) == ("f" * 32, "c1", "membership_sync")
    assert line["cause"] == f"order {ORDER}"
    assert line["ids"] == {"order": ORDER, "account": "a_one", "user": "ann"}
    assert (line["outcome"], line["error"]) == ("failed", "the database does not answer")
    assert line["commands"] == ["sacctmgr -i x", "docker -H ssh://me:***@host y"]
    assert line["action"]["action"] == "AddMember"


def test_no_other_user_reads_it(tmp_path: Path) -> None:
    site = place(tmp_path / "state")
    record(site, JOIN)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "state" / "journal").iterdir()} == {
        0o600
    }
    assert stat.S_IMODE((tmp_path / "state" / "journal").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(), [JOIN, LEAVE, MAKE]),
        (Query(user="bob"), [LEAVE]),
        (Query(account="a_one"), [JOIN, LEAVE]),
        (Query(account="p_one"), [MAKE]),
        (Query(order=ORDER), [JOIN]),
        (Query(offerings=frozenset({"f" * 32}), user="ann"), [JOIN]),
        (Query(offerings=frozenset({"0" * 32})), []),
        (Query(since=datetime.now(UTC) - timedelta(hours=1)), [JOIN, LEAVE, MAKE]),
        (Query(since=datetime.now(UTC) + timedelta(hours=1)), []),
        (Query(until=datetime.now(UTC) - timedelta(hours=1)), []),
    ],
)
def test_queries(tmp_path: Path, query: Query, found: list[Action]) -> None:
    site = place(tmp_path / "state")
    record(site, JOIN, LEAVE)
    record(site, MAKE)
    assert texts(site, query) == [action.render() for action in found]


def test_several_processes_write_whole_lines(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        site = place(tmp_path)
        for n in range(40):
            record(site, AddMember(account="a" * 500, user=f"{writer}-{n}"))

    writers = [multiprocessing.get_context("fork").Process(target=write, args=[n]) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    lines = (tmp_path / "journal" / "journal.jsonl").read_text().splitlines()
    users = {json.loads(line)["ids"]["user"] for line in lines}
    assert len(lines) == len(users) == 160


def test_full_files_are_put_aside_and_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 2000)
    monkeypatch.setattr(journal, "FILES", 3)
    site = place(tmp_path)
    for n in range(40):
        record(site, AddMember(account="a_one", user=f"u{n:02}"))
    files = sorted(path.name for path in (tmp_path / "journal").glob("*.jsonl"))
    assert files == ["journal.1.jsonl", "journal.2.jsonl", "journal.jsonl"]
    users = [line["ids"]["user"] for line in journal.read(tmp_path)]
    assert users == sorted(users)
    assert users[-1] == "u39"
    assert 6 <= len(users) < 20


def test_a_line_that_was_cut_spoils_no_other(tmp_path: Path) -> None:
    site = place(tmp_path)
    record(site, JOIN)
    path = tmp_path / "journal" / "journal.jsonl"
    with path.open("a") as file:
        file.write('{"time": "2026-')
    record(site, LEAVE)
    assert texts(site) == [JOIN.render(), LEAVE.render()]


def test_a_full_disk_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "journal").mkdir()
    os.symlink("/dev/full", tmp_path / "journal" / "journal.jsonl")
    record(place(tmp_path), JOIN)
    assert "cannot be written: No space left on device" in caplog.text


def test_names_that_are_not_utf8_are_kept_readable(tmp_path: Path) -> None:
    site = place(tmp_path)
    record(site, AddMember(account="a_one", user="b\udce4r"))
    (line,) = journal.read(tmp_path)
    assert line["ids"]["account"] == "a_one"


def test_the_file_itself_steers_no_terminal(tmp_path: Path) -> None:
    user = "Jürgen 名\x1b[2J\x9b2J\u202e\u2028\n"
    record(place(tmp_path), AddMember(account="a_one", user=user))
    text = (tmp_path / "journal" / "journal.jsonl").read_text()
    assert "Jürgen 名" in text
    assert not set("\x1b\x9b\u202e\u2028") & set(text)
    assert text.count("\n") == 1
    (line,) = journal.read(tmp_path)
    assert line["action"]["user"] == user


def test_what_a_person_did_is_recorded_too(world: World) -> None:
    site = world.site
    journal.note(site.state_dir, site.offering, "approved plan x", by="ann", mode="order_process")
    (line,) = journal.read(site.state_dir)
    assert (line["cause"], line["action"]["text"]) == ("operator ann", "approved plan x")
