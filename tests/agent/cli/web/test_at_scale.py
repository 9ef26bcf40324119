# SPDX-License-Identifier: MIT
"""5,000 allocations of 20,000 people, a plan about all, and a journal of three files: bytes and reads of each page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from agent.cli.web import passwords
from agent.cli.web.roles import Role
from agent.core.overview import SeenAllocation, SeenPerson, search_text
from agent.run.service import configuration
from agent.run.usage import stored
from agent.state import journal
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.hints import SEEN_ALLOCATIONS, SEEN_PEOPLE, USAGES
from agent.state.store import Db
from rig.site import configuration as site_configuration
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.usage.sheets import many, view
from tests.agent.cli.web.running import Running, login, serving

ALLOCATIONS, PEOPLE, MEMBERS = 5000, 20_000, 8
LINES = 40_000
MEGABYTE = 10**6
PLAN = "f" * 64
# Of any page, with three modes of one offering and a held plan; how many allocations there are changes nothing.
QUERIES_AT_MOST = 24


def uuid(kind: str, number: int) -> str:
    return f"{kind}{number:031x}"


def username(number: int) -> str:
    return f"user{number % PEOPLE:05}"


def allocation(number: int) -> SeenAllocation:
    members = tuple(sorted({username(number * MEMBERS + each) for each in range(MEMBERS)}))
    name, account, project = f"Allocation <b>{number}</b>", f"a_alloc_{number}", f"Project {number // 5}"
    return SeenAllocation(
        search_text(name, account, project, uuid("a", number), *members),
        name,
        account,
        project,
        "University of Somewhere",
        "OK" if number % 50 else "OK, paused",
        {"cpu": "1000", "gpu": "20"},
        {"cpu": 60_000, "gres/gpu": 1200},
        members,
        missing=("late",) if number % 100 == 0 else (),
    )


def person(number: int) -> SeenPerson:
    search = search_text(f"Ann {number}", username(number))
    return SeenPerson(search, uuid("e", number), username(number), f"Ann {number}", "", "OK")


def plan() -> HeldRow:
    kinds = ("RemoveMember", "SetLimits", "BlockAccount", "DeleteUser", "DeleteAccount")
    lines = {
        json.dumps(
            [kind, {"account": f"a_alloc_{number}", "user": username(number)}]
        ): f"{kind} a_alloc_{number}"
        for number in range(ALLOCATIONS)
        for kind in kinds
    }
    return HeldRow(PLAN, "all accounts", "5000 accounts would be deleted at once", "cluster", lines)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("site")
    with SimulatedWaldur() as waldur:
        config = site_configuration(
            waldur, folder, membership_sync_backend="slurm", reporting_backend="slurm"
        )
    settings, _ = configuration.usable(Path(config), os.environ, with_logins=False)
    (offering,) = settings.offerings
    where = (settings.state_dir, offering.uuid)
    SEEN_ALLOCATIONS.put(*where, {uuid("a", number): allocation(number) for number in range(ALLOCATIONS)})
    SEEN_PEOPLE.put(*where, {username(number): person(number) for number in range(PEOPLE)})
    HeldPlans(settings.state_dir, offering, "membership_sync").hold(plan())
    USAGES.put(*where, {"": stored.as_json(view(many(ALLOCATIONS, 12)))})
    journal.note(settings.state_dir, offering, "the first line", by="ann")
    (folder_of_journal,) = settings.state_dir.glob("journal")
    began = datetime.now(UTC) - timedelta(days=9)
    lines = [
        json.dumps(
            {
                "time": (began + timedelta(seconds=number)).isoformat(),
                "offering": offering.uuid,
                "offering_name": offering.name,
                "mode": "membership_sync",
                "cause": f"resource {uuid('a', number % ALLOCATIONS)}, Allocation",
                "outcome": "done",
                "error": None,
                "ids": {"account": f"a_alloc_{number % ALLOCATIONS}", "user": username(number)},
                "action": {
                    "action": "AddMember",
                    "text": f"add member {username(number)} to a_alloc_{number}",
                },
                "commands": ["sacctmgr -i add user"],
            }
        )
        for number in range(LINES)
    ]
    for name in ("journal.jsonl", "journal.1.jsonl", "journal.2.jsonl"):
        (folder_of_journal / name).write_text("\n".join(lines) + "\n")
    passwords.write(settings.state_dir / passwords.NAME, {"ann": login("ann", Role.OPERATOR)})
    with serving(settings) as running:
        yield running


@pytest.fixture(scope="module")
def session(console: Running) -> requests.Session:
    return console.log_in("ann")


PATHS = (
    "/",
    f"/plan/{PLAN}",
    f"/plan/{PLAN}?q=a_alloc_4999",
    "/allocations",
    "/allocations?q=allocation+499",
    "/allocations?page=90",
    "/allocations?only=trouble",
    f"/allocation/@/{uuid('a', 100)}",
    "/people?q=user00042",
    "/person/@/user00042",
    "/orders",
    "/usage/@",
    "/audit",
    "/audit?q=member+a_alloc_77",
    "/audit?account=a_alloc_77",
    "/audit?user=nobody",
    "/queues",
    "/offering/@",
    f"/look/person/@/{uuid('a', 5)}/user00040",
)


@pytest.mark.parametrize("path", PATHS)
def test_bytes_and_queries_of_each_page(
    path: str, console: Running, session: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def read(*args: object) -> object:
            nonlocal queries
            queries += 1
            return real(*args)

        return read

    for name in ("row", "rows", "raw_rows"):
        monkeypatch.setattr(Db, name, counted(getattr(Db, name)))
    address = f"{console.url}{path.replace('@', console.settings.offerings[0].uuid)}"
    while "The charts are being drawn" in (answer := session.get(address)).text:
        queries = 0
    print(path, answer.elapsed.total_seconds(), len(answer.content), queries)
    assert answer.status_code == 200
    assert len(answer.content) < MEGABYTE
    assert queries <= QUERIES_AT_MOST
    assert "<b>" not in answer.text
