# SPDX-License-Identifier: MIT
"""`usage-check`: which counts differ, by how much, and why; and what cannot be known."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from agent.core.errors import BackendError, BackendUnavailable
from backends.testing.memory import MemoryBackend, MemoryCluster
from simulator.server.faults import Fault
from simulator.world.records import ResourceState
from tests.agent.cli.conftest import Command
from tests.agent.cli.usage.world import COMPONENT, LAST, PRESENT, Job, World, plugin

WHOLE = ("cpu", "mem")


@pytest.fixture
def checked(world: World) -> World:
    """The first account had a requeued job, the second one was given more than it asked for, and ran into the month."""
    first, second = world.names
    world.cluster.lay_down(
        LAST,
        Job(first, "ada", runs=(3600, 7200), crosses=True),
        Job(second, "bob", asked="cpu=1,mem=1024", given="cpu=4,mem=4096", runs=(36_000,)),
        Job("others", "zoe", runs=(1800,)),
    )
    return world


def waldur_has(world: World, account: str, **amounts: str) -> None:
    """Set what Waldur holds for the last month."""
    import requests

    resource = next(
        u for u in world.waldur.seed.resource_uuids if world.waldur.resource(u).backend_id == account
    )
    listed = [{"type": name, "amount": amount} for name, amount in amounts.items()]
    answer = requests.post(
        f"{world.waldur.url}marketplace-component-usages/set_usage/",
        json={"resource": resource, "usages": listed, "date": f"{LAST.first_day}T00:00:00Z"},
        headers={"Authorization": f"Token {world.waldur.token('staff')}"},
        timeout=600,
    )
    assert answer.status_code == 201, answer.text


def test_counts_of_each_account_side_by_side(checked: World, command: Command) -> None:
    first, second = checked.names
    waldur_has(checked, first, cpu="4.00", mem="8.00")
    said = command("usage-check", "-c", checked.configure())
    assert (said.code, said.err) == (0, "")
    cpu = said.out.split("\n\n")[1].splitlines()
    assert cpu[0] == "CPU, core-hours"
    assert cpu[1].split() == ["account", "reference", "requested", "allocated", "sreport", "Waldur"]
    assert [line.split() for line in cpu[2:6]] == [
        [first, "4.00", "6.00", "6.00", "6.00", "4.00", "*"],
        [second, "10.00", "10.00", "40.00", "40.00", "-", "*"],
        ["others", "1.00", "1.00", "1.00", "1.00", "-"],
        ["all", "15.00", "17.00", "47.00", "47.00", "4.00", "*"],
    ]


def test_only_the_component_in_which_an_account_differs_is_marked(checked: World, command: Command) -> None:
    first, second = checked.names
    waldur_has(checked, first, cpu="6.00", mem="11.00")
    waldur_has(checked, second, cpu="40.00", mem="40.00")
    out = command("usage-check", "-c", checked.configure(usage_source="allocated")).out
    tables = {table.partition(",")[0]: table.splitlines() for table in out.split("\n\n")[1:3]}
    (mem,) = (line for line in tables["Memory"] if line.startswith(first))
    assert mem.endswith("*")
    for lines in tables.values():
        explained = {
            line.strip().rstrip(":") for line in lines if line.startswith("  ") and line.endswith(":")
        }
        marked = {line.split()[0] for line in lines if line.endswith("*")} - {"all"}
        assert marked == explained


def test_what_differs_is_explained(checked: World, command: Command) -> None:
    first, _ = checked.names
    waldur_has(checked, first, cpu="4.00")
    out = command("usage-check", "-c", checked.configure()).out
    requeued, border = 2 * 3600, 2 * 2
    for sentence in (
        f"requested is {requeued + border - 2:,} cpu-seconds more than reference: "
        f"{requeued:,} in earlier runs of requeued jobs, 2 in the last second of the month",
        "allocated is 108,000 cpu-seconds more than requested: jobs were given more than they asked for",
        "Waldur has 2.00 less than the 6.00 core-hours that would be reported (requested)",
        "Waldur has nothing yet of the 10.00 core-hours that would be reported (requested)",
        "3 accounts, 2 of them with differences (* in what differs)",
        "AllocTRES equals sreport: yes, 169,200 cpu-seconds, 199,065,600 mem-seconds",
        "CPU: 17.00 core-hours as configured (requested); the reference counts -2.00 (-11.76%); with `usage_source: "
        "allocated` it would be +30.00 (+176.47%); 1.00 of it in accounts that no resource names; Waldur's bills move "
        "by +12.00",
    ):
        assert sentence in out


def test_who_differs_can_be_checked_by_hand(checked: World, command: Command) -> None:
    out = command("usage-check", "-c", checked.configure()).out
    by_hand = out.partition("to check by hand")[2].splitlines()[1:]
    assert by_hand == [f"  count --of={name} --in={LAST} --what=requested" for name in checked.names]


def test_what_was_reported_as_configured_is_the_same(checked: World, command: Command) -> None:
    first, second = checked.names
    waldur_has(checked, first, cpu="6.00", mem="12.00")
    waldur_has(checked, second, cpu="40.00", mem="40.00")
    config = checked.configure(usage_source="allocated")
    said = command("usage-check", "--exit-code", "-c", config)
    assert said.code == 0
    assert said.out.count("Waldur has the same") == len(WHOLE)
    assert command("usage-check", "--exit-code", "-c", checked.configure()).code == 3


def test_commands_are_six_however_many_accounts_there_are(checked: World, command: Command) -> None:
    assert command("usage-check", "-c", checked.configure()).code == 0
    assert sorted(checked.cluster.calls) == ["observe", "rolled_up"] + ["usage"] * 4
    checked.cluster.calls.clear()
    jobs = [Job(f"p{n}", f"u{n}") for n in range(300)]
    checked.cluster.lay_down(LAST, *jobs)
    assert command("usage-check", "-c", checked.configure()).code == 0
    assert sorted(checked.cluster.calls) == ["observe", "rolled_up"] + ["usage"] * 3


def test_one_account_on_request(checked: World, command: Command) -> None:
    first, _ = checked.names
    (offering,) = command(
        "usage-check", "--account", first.upper(), "--json", "-c", checked.configure()
    ).document()["offerings"]
    (account,) = offering["accounts"]
    assert (account["account"], offering["total"]["tres_seconds"]) == (first, account["tres_seconds"])
    assert account["tres_seconds"]["cpu"] == {
        "reference": 14_398, "requested": 21_600, "allocated": 21_600, "sreport": 21_600, "requeues": 7200,
        "last_second": 2,
    }  # fmt: skip
    assert account["amounts"]["cpu"] == {
        "reference": "4.00", "requested": "6.00", "allocated": "6.00", "sreport": "6.00", "waldur": None,
        "waldur_would_move_by": "6.00",
    }  # fmt: skip


def test_an_account_without_jobs_has_nothing_and_one_that_is_not_there_is_unknown(
    checked: World, command: Command
) -> None:
    checked.cluster.have("quiet")
    lines = {
        name: command("usage-check", "--account", name, "-c", checked.configure()).out.splitlines()
        for name in ("quiet", "nobody")
    }
    said = f"the account nobody is not known: the cluster has none of that name, and names no job of it in {LAST}"
    assert said in lines["nobody"]
    assert "AllocTRES equals sreport: unknown" in lines["nobody"]
    assert "is not known" not in "".join(lines["quiet"])
    assert any(line.startswith("AllocTRES equals sreport: yes, 0 cpu-seconds") for line in lines["quiet"])
    assert next(line for line in lines["quiet"] if line.startswith("quiet")).split()[1:4] == ["0.00"] * 3
    assert next(line for line in lines["nobody"] if line.startswith("nobody")).split()[1:4] == ["unknown"] * 3


def test_sreport_that_has_summed_up_less_is_shown(checked: World, command: Command) -> None:
    checked.cluster.forgotten[checked.names[1]] = 44_000
    said = command("usage-check", "--exit-code", "-c", checked.configure())
    assert said.code == 3
    assert "AllocTRES equals sreport: no, sreport has cpu -44,000 of 169,200 cpu-seconds" in said.out
    assert "slurmdbd has not rolled up all of the month" in said.out


def test_an_empty_answer_of_sreport_is_unknown(checked: World, command: Command) -> None:
    first, _ = checked.names
    waldur_has(checked, first, cpu="6.00")
    checked.cluster.lay_down(LAST, Job(first, "ada", asked="cpu=2", runs=(10_800,)), rolled_up=False)
    said = command("usage-check", "--exit-code", "-c", checked.configure(components={"cpu": COMPONENT}))
    assert said.code == 0, "what is unknown is no difference"
    assert f"sreport: unknown: sreport has no rows at all for {LAST}, which says nothing" in said.out
    assert "AllocTRES equals sreport: unknown" in said.out


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BackendUnavailable("slurmdbd does not answer"), 1),
        (BackendError("no month of the cluster's own zone"), 0),
    ],
)
def test_why_sreport_is_unknown_is_said(
    checked: World, command: Command, error: BackendError, code: int
) -> None:
    checked.cluster.no_summary = error
    said = command("usage-check", "-c", checked.configure())
    assert said.code == code, "an outage is a failure"
    assert f"sreport: unknown: {error}" in said.out


def test_a_backend_without_a_second_count_is_compared_without_it(world: World, command: Command) -> None:
    spent = {str(LAST): {world.names[0]: {"ada": {"cpu": 7200, "mem": 4096}}}}
    plugin.clusters[world.folder.name] = MemoryBackend(on=MemoryCluster(counted=spent))
    said = command("usage-check", "-c", world.configure())
    assert said.code == 0
    assert "there is no second count: this kind of cluster keeps one record" in said.out
    assert "sreport" not in said.out


def test_the_present_month_has_no_sreport(checked: World, command: Command) -> None:
    checked.cluster.lay_down(PRESENT, Job(checked.names[0], "ada"))
    said = command("usage-check", "--month", str(PRESENT), "-c", checked.configure())
    assert said.code == 0
    assert f"sreport: unknown: {PRESENT} has not ended" in said.out
    assert "rolled_up" not in checked.cluster.calls


def test_without_waldur_its_figures_are_unknown(checked: World, command: Command) -> None:
    config = checked.configure()
    checked.waldur.inject(Fault(method="GET", path="marketplace-component-usages", status=403, times=None))
    said = command("usage-check", "-c", config)
    assert said.code == 1
    assert "Waldur: unknown, it did not answer" in said.out
    assert "Waldur has" not in said.out
    assert "AllocTRES equals sreport: yes" in said.out


def test_without_the_cluster_there_is_an_error(checked: World, command: Command) -> None:
    checked.cluster.fail()
    said = command("usage-check", "-c", checked.configure())
    assert (said.code, said.out) == (1, "")
    assert "the accounting database does not answer" in said.err


def test_a_month_in_which_the_cluster_names_no_job_is_unknown(world: World, command: Command) -> None:
    world.cluster.lay_down(LAST)
    said = command("usage-check", "-c", world.configure())
    assert said.code == 0
    assert f"{LAST}: unknown, the cluster names no job at all" in said.out


@pytest.mark.parametrize(
    ("month", "sentence"), [("2026-13", "is no month"), ("soon", "is no month"), ("2999-01", "has not begun")]
)
def test_months_that_cannot_be_looked_at(world: World, command: Command, month: str, sentence: str) -> None:
    said = command("usage-check", "--month", month, "-c", world.configure())
    assert said.code == 2
    assert sentence in said.err


def terminated(world: World, account: str) -> None:
    resource = next(
        u for u in world.waldur.seed.resource_uuids if world.waldur.resource(u).backend_id == account
    )
    world.waldur.site.change("resources", resource, state=ResourceState.TERMINATED)


def test_a_terminated_resource_names_its_account(checked: World, command: Command) -> None:
    """Its last usage was not reported: Waldur has 0.00 for good, and nothing would show it."""
    first, second = checked.names
    waldur_has(checked, first, cpu="0.00", mem="0.00")
    waldur_has(checked, second, cpu="40.00", mem="40.00")
    for account in (first, second):
        terminated(checked, account)
    config = checked.configure(usage_source="allocated")
    said = command("usage-check", "--exit-code", "-c", config)
    assert said.code == 3
    assert "3 accounts, 2 of them with differences" in said.out
    assert (
        "Waldur has 6.00 less than the 6.00 core-hours that were used (allocated), and takes no more of a terminated "
        "resource: put it right there" in said.out
    )
    assert "; 1.00 of it in accounts that no resource names; Waldur's bills move by +6.00" in said.out
    (line, *_) = json.loads(command("usage-check", "--json", "-c", config).out)["offerings"][0]["accounts"]
    assert (line["account"], line["resource"] is not None, line["terminated"]) == (first, True, True)
    assert (line["amounts"]["cpu"]["waldur"], line["amounts"]["cpu"]["waldur_would_move_by"]) == (
        "0.00",
        "6.00",
    )


def test_sums_are_sums_of_what_is_shown(checked: World, command: Command) -> None:
    for account, amount in zip(checked.names, ("6.00", "10.00"), strict=True):
        waldur_has(checked, account, cpu=amount)
        terminated(checked, account)
    out = command("usage-check", "-c", checked.configure()).out
    rows = [line.split()[1:6] for line in out.split("\n\n")[1].splitlines()[2:6]]
    *accounts, total = ([None if cell == "-" else Decimal(cell) for cell in row] for row in rows)
    assert total == [sum(cell or 0 for cell in column) for column in zip(*accounts, strict=True)]
    assert total[-1] == Decimal(16)


def test_an_account_that_a_new_resource_has_taken_over_was_reported_for_both(
    checked: World, command: Command
) -> None:
    first, second = checked.names
    waldur_has(checked, first, cpu="2.00", mem="12.00")
    terminated(checked, first)
    heir = next(
        u for u in checked.waldur.seed.resource_uuids if checked.waldur.resource(u).backend_id == second
    )
    waldur_has(checked, second, cpu="4.00", mem="0.00")
    checked.waldur.site.change("resources", heir, backend_id=first)
    checked.names = [first]
    out = command("usage-check", "--account", first, "-c", checked.configure()).out
    assert "Waldur has the same" in out
