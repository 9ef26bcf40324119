# SPDX-License-Identifier: MIT
"""`forget` drops one kind of what is remembered of one offering, and the journal says who did."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.state import journal, listings, pauses
from agent.state.held_plans import HeldPlans, HeldRow
from rig.site import settings_of
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import OperatorSite
from tests.agent.state.obstacles import block, damage

URL = "https://waldur.example/"


def test_one_kind_is_forgotten_and_nothing_else(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    settings = settings_of(Path(config))
    (offering,) = settings.offerings
    for uuid in (offering.uuid, "f" * 32):
        listings.write(settings.state_dir, uuid, URL, {"one": listings.Listing()})
    held = HeldPlans(settings.state_dir, offering, "report")
    held.hold(HeldRow("p1", "account a", "too many", "demo", {"k": "remove ann"}))
    held.approvals.approve("p1", expires=datetime.now(UTC) + timedelta(hours=1), by="ann")
    assert command("forget", "listings", "-c", config).out == "Test SLURM: 1 row forgotten (listings)\n"
    assert command("forget", "listings", "-c", config).out == "Test SLURM: 0 rows forgotten (listings)\n"
    assert listings.known(settings.state_dir, offering.uuid, URL) == {}
    assert listings.known(settings.state_dir, "f" * 32, URL) and held.approvals.open()
    noted = [line["action"]["text"] for line in journal.read(settings.state_dir)]
    assert noted == ["made the agent forget listings (1)"]


def test_what_must_not_be_lost_is_not_forgotten(site: OperatorSite, command: Command) -> None:
    said = command("forget", "approvals", "-c", site.configure())
    assert (said.code, "'approvals' is not one of" in said.err) == (2, True)


def test_what_people_decided_is_unknown_where_the_file_is_damaged(
    site: OperatorSite, command: Command
) -> None:
    config = site.configure()
    settings = settings_of(Path(config))
    pauses.pause(settings.state_dir, settings.offerings[0], by="ann")
    damage(settings.state_dir)
    for words in (("status",), ("approve",), ("forget", "homes"), ("run", "order_process", "--once")):
        said = command(*words, "-c", config)
        assert (said.code, "move it aside" in said.out + said.err) == (1, True), words


def test_where_nothing_can_be_written_it_says_so(site: OperatorSite, command: Command) -> None:
    config = site.configure()
    block(settings_of(Path(config)).state_dir)
    said = command("forget", "homes", "-c", config)
    assert (said.code, "cannot be written" in said.err) == (1, True)
