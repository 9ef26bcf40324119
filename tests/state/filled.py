# SPDX-License-Identifier: MIT
"""A state file with a row of each table, and who reads each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.core.homes import HomeRecord
from agent.core.model import Resource, ResourceState
from agent.core.ownership import Origin
from agent.core.periods import Month
from agent.core.policy import Charge, Cost
from agent.core.project_directories import DirectoryRecord
from agent.core.usage import SettledMonth, SettledUsage
from agent.state import (
    blocked,
    charges,
    cluster_usernames,
    counts,
    dead_letters,
    drifts,
    empty_answers,
    given_usernames,
    hierarchy_names,
    history_runs,
    joined,
    ledger,
    left_out,
    listings,
    passes,
    pauses,
    periodic_policies,
    project_directories,
    report_state,
    reported_accounts,
    settled_usage,
    shown_services,
    told_members,
    untold_usage,
)
from agent.state.command_costs import CommandCosts
from agent.state.counts import Figure
from agent.state.dead_letters import DeadLetter
from agent.state.drifts import Drift
from agent.state.held_plans import HeldPlans, HeldRow
from agent.state.homes import HomeState
from agent.state.listings import Listing
from agent.state.marked_accounts import MarkedAccounts
from agent.state.periodic_policies import ParkedMessage, PolicyState
from agent.state.report_state import ReportState
from agent.state.shown_services import ShownService
from agent.state.store import Store
from tests.state.conftest import offering

OURS = offering()
MODE, URL, CLUSTER = "order_process", "https://waldur.example", "demo"
NOW = datetime.now(UTC)
NAIVE = NOW.replace(tzinfo=None)
MONTH = Month(2026, 5)
READERS: dict[str, Callable[[Path], object]] = {
    "held_plans": lambda folder: HeldPlans(folder, OURS, MODE).keep_only({"p1"}, {"k"}, set()),
    "approvals": lambda folder: HeldPlans(folder, OURS, MODE).approvals.close(set(), set(), set()),
    "ledger_accounts": lambda folder: ledger.read(folder, CLUSTER, OURS.uuid),
    "ledgers": lambda folder: ledger.of_others(folder, CLUSTER, "x", {}),
    "joined_members": lambda folder: joined.of_accounts(folder, CLUSTER, {"a"}, NOW),
    "pauses": lambda folder: pauses.pause_note(folder, OURS),
    "charges": lambda folder: charges.history(folder, CLUSTER, NOW),
    "left_out": lambda folder: left_out.last(folder, OURS.uuid, MODE),
    "drifts": lambda folder: drifts.last(folder, OURS.uuid, MODE),
    "empty_answers": lambda folder: empty_answers.is_believed(folder, OURS.uuid, MODE),
    "waldur_listings": lambda folder: listings.known(folder, OURS.uuid, URL),
    "seen_offerings": lambda folder: listings.was_seen(folder, OURS.uuid, URL, timedelta(hours=1)),
    "passes": lambda folder: passes.last(folder, OURS.uuid, MODE),
    "homes": lambda folder: HomeState(folder, OURS.uuid).users,
    "refused_months": lambda folder: report_state.load(folder, OURS.uuid).is_refused(MONTH, NOW),
    "live_jobs": lambda folder: sum(report_state.load(folder, OURS.uuid).jobs_of(MONTH, "a").values()),
    "failed_resources": lambda folder: report_state.load(folder, OURS.uuid).failed,
    "history_months": lambda folder: history_runs.keep(folder, "run", ["2026-06"]),
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
    "project_directories": lambda folder: project_directories.records(folder, OURS.uuid),
    "shown_services": lambda folder: shown_services.known(folder, OURS.uuid, MODE, URL),
    "told_members": lambda folder: told_members.of_offering(folder, OURS.uuid),
    "pass_counts": counts.all_of,
    "command_costs": lambda folder: CommandCosts(folder, CLUSTER).read("accounts"),
    "settled_usage": lambda folder: settled_usage.load(folder, OURS.uuid),
    "settled_months": lambda folder: settled_usage.load(folder, OURS.uuid),
    "untold_usage": lambda folder: untold_usage.of_offering(folder, OURS.uuid),
    "settled_accounts": lambda folder: settled_usage.load(folder, OURS.uuid),
}  # fmt: skip


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
    left_out.write(folder, OURS.uuid, MODE, ["remove ann"], meant="x")
    drifts.write(folder, OURS.uuid, MODE, Drift("2026-05-01T00:00:00Z", "", {"remove member": 1}))
    empty_answers.note(folder, OURS.uuid, MODE, is_empty=True)
    listings.write(folder, OURS.uuid, URL, {"robots": Listing(NOW)})
    listings.note_seen(folder, OURS.uuid, URL)
    passes.add(folder, OURS.uuid, MODE, {"ended": "2026-05-01T00:00:00Z", "result": "done"}, idle=False)
    homes = HomeState(folder, OURS.uuid)
    homes["ann"] = HomeRecord("/home/ann", "", 1, "")
    assert homes.save()
    report_state.save(
        folder, OURS.uuid, ReportState({str(MONTH): NOW}, {str(MONTH): {"a": {"1": 5}}}, frozenset({"r"}))
    )
    history_runs.add(folder, "run", OURS.uuid, {}, "2026-05", {"month": "2026-05"})
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
    untold_usage.add(
        folder, OURS.uuid, untold_usage.UntoldUsage("r", "a", "2026-05", "cpu 1 of 2", "refused")
    )
    given_usernames.write(folder, OURS.uuid, {"1" * 32: "ann"})
    cluster_usernames.write(folder, OURS.uuid, {"1" * 32: "ann"})
    MarkedAccounts(folder, "moab", "blocked").add("a")
    hierarchy_names.write(folder, CLUSTER, OURS.uuid, {"2" * 32: "p"})
    project_directories.write(folder, OURS.uuid, {"a": DirectoryRecord("1 TB", "said")})
    shown_services.write(folder, OURS.uuid, MODE, URL, ShownService("3" * 32, "4" * 32, "v1", NOW, NOW))
    told_members.write(folder, OURS.uuid, {"r": {"1" * 32: "ann"}}, [])
    counts.add(folder, OURS.uuid, MODE, {(Figure.PASSES, "done", ""): 1.0})
    CommandCosts(folder, CLUSTER).write("accounts", 2.5)
    month = SettledMonth(1, {"a": {"ann": {"cpu": 5}}})
    settled_usage.save(folder, OURS.uuid, SettledUsage("slurm", 1, 1, 2, "x", "2026-05", {"2026-05": month}))
