# SPDX-License-Identifier: MIT
"""A state file with a row of each table, and who reads each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from agent.core.homes import HomeRecord
from agent.core.model import Resource, ResourceState
from agent.core.ownership import Origin
from agent.core.periods import Month
from agent.core.policy import Charge, Cost
from agent.core.project_directories import DirectoryRecord
from agent.core.usage import FinalisedMonth, FinalisedUsage
from agent.state import (
    blocked,
    charges,
    cluster_usernames,
    dead_letters,
    empty_answers,
    finalised_usage,
    given_usernames,
    hierarchy_names,
    joined,
    ledger,
    listings,
    passes,
    pauses,
    periodic_policies,
    report_state,
    reported_accounts,
    unreported_usage,
)
from agent.state.dead_letters import DeadLetter
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.hints import (
    COMMAND_COSTS,
    DRIFTS,
    HINTS,
    HISTORY_MONTHS,
    HOMES,
    PROJECT_DIRECTORIES,
    REPORTED_MEMBERS,
    REPORTED_SERVICES,
    SEEN_OFFERINGS,
    SKIPPED,
    Drift,
    ReportedService,
    Skipped,
)
from agent.state.listings import Listing
from agent.state.marked_accounts import MarkedAccounts
from agent.state.passes import Figure
from agent.state.periodic_policies import ParkedMessage, PolicyState
from agent.state.report_state import ReportState
from agent.state.store import Store, kept_open
from tests.agent.state.conftest import offering

OURS = offering()
MODE, URL, CLUSTER = "order_process", "https://waldur.example", "demo"
NOW = datetime.now(UTC)
NAIVE = NOW.replace(tzinfo=None)
MONTH = Month(2026, 5)


def read_hints(folder: Path) -> list[object]:
    """Read each kind of hint of each scope, by one connection where none fails."""
    with kept_open(folder):
        return [kind.all(folder, scope) for kind in HINTS for scope in (OURS.uuid, "run", CLUSTER)]


READERS: dict[str, Callable[[Path], object]] = {
    "held_plans": lambda folder: HeldPlans(folder, OURS, MODE).keep_only({"p1"}, {"k"}, set()),
    "approvals": lambda folder: HeldPlans(folder, OURS, MODE).approvals.close(set(), set(), set()),
    "ledger_accounts": lambda folder: ledger.read(folder, CLUSTER, OURS.uuid),
    "ledgers": lambda folder: ledger.of_others(folder, CLUSTER, "x", {}),
    "joined_members": lambda folder: joined.of_accounts(folder, CLUSTER, {"a"}, NOW),
    "pauses": lambda folder: pauses.pause_note(folder, OURS),
    "charges": lambda folder: charges.history(folder, CLUSTER, NOW),
    "empty_answers": lambda folder: empty_answers.is_believed(folder, OURS.uuid, MODE),
    "waldur_listings": lambda folder: listings.known(folder, OURS.uuid, URL),
    "blocked_members": lambda folder: blocked.by_account(folder, OURS.uuid),
    "periodic_policies": lambda folder: PolicyState(folder, OURS.uuid, "p", "r").applied(NAIVE),
    "periodic_resets": lambda folder: PolicyState(folder, OURS.uuid, "p", "r").has_reset("2026", NAIVE),
    "periodic_parked": lambda folder: periodic_policies.parked(folder, OURS.uuid),
    "periodic_commands": lambda folder: PolicyState(folder, OURS.uuid, "p", "r").commands("m"),
    "reported_accounts": lambda folder: reported_accounts.of_others(folder, CLUSTER, {OURS.uuid: "ours"}),
    "dead_letters": lambda folder: [letter.content() for letter in dead_letters.listed(folder)],
    "given_usernames": lambda folder: given_usernames.of_offering(folder, OURS.uuid),
    "cluster_usernames": lambda folder: cluster_usernames.of_offering(folder, OURS.uuid),
    "marked_accounts": lambda folder: "a" in MarkedAccounts(folder, "moab", "blocked"),
    "hierarchy_names": lambda folder: hierarchy_names.of_offering(folder, CLUSTER, OURS.uuid),
    "finalised_usage": lambda folder: finalised_usage.load(folder, OURS.uuid),
    "finalised_months": lambda folder: finalised_usage.load(folder, OURS.uuid),
    "hints": read_hints,
    "unreported_usage": lambda folder: unreported_usage.of_offering(folder, OURS.uuid),
    "finalised_accounts": lambda folder: finalised_usage.load(folder, OURS.uuid),
}  # fmt: skip


@cache
def filled() -> bytes:
    """Return the file that `fill` writes."""
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder))
        return Store(Path(folder)).path.read_bytes()


def fill(folder: Path) -> None:
    """Write a row of each table."""
    held = HeldPlans(folder, OURS, MODE)
    held.hold(HeldRow("p1", "account a", "too many", CLUSTER, {"k": "remove a"}, {"a": "1"}))
    held.approvals.approve("p1", expires=NOW + timedelta(days=1), by="ann")
    ledger.write(folder, CLUSTER, OURS, {"a": Origin.MADE}, is_seen=True)
    ledger.write_named(folder, CLUSTER, OURS, {"a"}, None)
    joined.write(folder, CLUSTER, [("a", "ann")], NOW)
    pauses.pause(folder, OURS, by="ann")
    charge = Charge(next(iter(Cost)), "a", "ann")
    charges.reserve(
        folder, [charge], cluster=CLUSTER, offering=OURS.uuid, mode=MODE, pass_id="1", now=NOW
    )  # fmt: skip
    SKIPPED.put(folder, OURS.uuid, {MODE: Skipped("2026-05-01T00:00:00Z", 1, ("remove ann",), "x")})
    DRIFTS.put(folder, OURS.uuid, {MODE: Drift("2026-05-01T00:00:00Z", "", {"remove member": 1})})
    empty_answers.note(folder, OURS.uuid, MODE, is_empty=True)
    listings.write(folder, OURS.uuid, URL, {"robots": Listing(NOW)})
    SEEN_OFFERINGS.put(folder, OURS.uuid, {URL: True})
    entry = {"ended": "2026-05-01T00:00:00Z", "result": "done"}
    passes.add(folder, OURS.uuid, MODE, entry, {(Figure.PASSES, "done", ""): 1.0})
    HOMES.put(folder, OURS.uuid, {"ann": HomeRecord("/home/ann", "", 1, "")})
    report_state.save(
        folder, OURS.uuid, ReportState({str(MONTH): NOW}, {str(MONTH): {"a": {"1": 5}}}, frozenset({"r"}))
    )
    HISTORY_MONTHS.put(folder, "run", {"2026-05": {"month": "2026-05"}})
    with Store(folder).write() as db:
        db.run("INSERT INTO blocked_members VALUES (?, 'a', 'ann', '')", OURS.uuid)
    policy = PolicyState(folder, OURS.uuid, "p", "r")
    policy.note_applied(NAIVE, NAIVE)
    policy.begin_reset("2026", NAIVE)
    policy.park(ParkedMessage({}, NAIVE, NAIVE, ()))

    policy.add_commands("m", ["sacctmgr"])
    reported_accounts.write(
        folder, CLUSTER, OURS.uuid, [Resource("r", "r", "r", ResourceState.OK, backend_id="a")]
    )
    dead_letters.park(folder, DeadLetter("1", "", OURS.uuid, "source", "order", "reason", 2, "ä€", False))
    unreported_usage.add(
        folder, OURS.uuid, unreported_usage.UnreportedUsage("r", "a", "2026-05", "cpu 1 of 2", "refused")
    )
    given_usernames.write(folder, OURS.uuid, {"1" * 32: "ann"})
    cluster_usernames.write(folder, OURS.uuid, {"1" * 32: "ann"})
    MarkedAccounts(folder, "moab", "blocked").add("a")
    hierarchy_names.write(folder, CLUSTER, OURS.uuid, {"2" * 32: "p"})
    PROJECT_DIRECTORIES.put(folder, OURS.uuid, {"a": DirectoryRecord("1 TB", "said")})
    REPORTED_SERVICES.put(
        folder, OURS.uuid, {f"{MODE} {URL}": ReportedService("3" * 32, "4" * 32, "v1", NOW, NOW)}
    )
    REPORTED_MEMBERS.put(folder, OURS.uuid, {"r": {"1" * 32: "ann"}})
    COMMAND_COSTS.put(folder, CLUSTER, {"accounts": 2.5})
    month = FinalisedMonth(1, {"a": {"ann": {"cpu": 5}}})
    finalised_usage.save(
        folder, OURS.uuid, FinalisedUsage("slurm", 1, 1, 2, "x", "2026-05", {"2026-05": month})
    )
