# SPDX-License-Identifier: MIT
"""`usage`: what it asks, what it shows, and what it says where something does not answer."""

from __future__ import annotations

import pytest

from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.usage.world import COMPONENT, LAST, PRESENT, Job, World


@pytest.fixture
def used(world: World) -> World:
    """The first account used 10 hours of two cores in the present month, the second one 5 in the last."""
    first, second = world.names
    world.cluster.lay_down(PRESENT, Job(first, "ada", runs=(36_000,)), Job("others", "zoe", runs=(7200,)))
    world.cluster.lay_down(LAST, Job(second, "bob", runs=(18_000,)))
    return world


def test_a_table_for_each_component(used: World, command: Command) -> None:
    first, second = used.names
    said = command("usage", "--months", "2", "-c", used.configure())
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    table = said.out.split("\n\n")[1].splitlines()
    assert table[0] == "CPU, core-hours; monthly limits"
    assert table[1].split() == ["resource", "account", str(LAST), str(PRESENT), "of", "limit"]
    assert table[2].split()[-5:] == [first, "0.00", "20.00", "▎", "2%"]
    assert table[3].split()[-4:] == [second, "10.00", "0.00", "0%"]
    assert table[4].split() == ["all", "10.00", "20.00", "▏", "1%"]
    assert table[5] == f"besides, 1 account that no resource of this offering names: 4.00 in {PRESENT}"


def test_one_command_a_month_and_one_for_the_accounts(used: World, command: Command) -> None:
    config = used.configure()
    used.waldur.requests.reset()
    assert command("usage", "--months", "2", "-c", config).code == 0
    assert used.cluster.calls == ["usage", "usage", "observe"]
    assert used.waldur.requests.count() == 2


def test_users_on_request(used: World, command: Command) -> None:
    config = used.configure()
    assert "ada" not in command("usage", "--months", "1", "-c", config).out
    lines = command("usage", "--months", "1", "--users", "-c", config).out.splitlines()
    assert [line.split() for line in lines if "ada" in line] == [["ada", "20.00"], ["ada", "40.00"]]
    assert not any("bob" in line for line in lines), "who had nothing in these months is not named"


def test_json_has_all_of_it(used: World, command: Command) -> None:
    first, _ = used.names
    (offering,) = command("usage", "--months", "2", "--users", "--json", "-c", used.configure()).document()[
        "offerings"
    ]
    account = next(a for a in offering["accounts"] if a["account"] == first)
    assert account["usage"] == {
        str(LAST): {"cpu": "0.00", "mem": "0.00"},
        str(PRESENT): {"cpu": "20.00", "mem": "40.00"},
    }
    assert account["users"] == {"ada": account["usage"]}
    assert account["limits"] == {"cpu": "1000", "mem": "2000"}
    assert account["used_of_limit"] == {"cpu": 0.02, "mem": 0.02}
    assert [a["account"] for a in offering["other_accounts"]] == ["others"]
    assert (offering["usage_source"], offering["zone"], offering["error"]) == ("requested", "UTC", None)


def test_what_the_cluster_does_not_know_is_unknown_and_not_zero(used: World, command: Command) -> None:
    used.cluster.have(used.names[0])
    said = command("usage", "--months", "1", "-c", used.configure())
    lines = {line.split()[-3]: line for line in said.out.splitlines() if used.names[1] in line}
    assert said.code == 0
    assert "unknown" in "".join(lines.values())
    assert f"not on the cluster, and without jobs, so that nothing is known: {used.names[1]}" in said.out


def test_a_month_without_any_job_is_unknown(world: World, command: Command) -> None:
    world.cluster.lay_down(LAST, Job(world.names[0], "ada"))
    world.cluster.lay_down(PRESENT)
    said = command("usage", "--months", "2", "-c", world.configure())
    assert said.code == 0
    assert f"{PRESENT}: unknown, the cluster names no job at all" in said.out
    account = next(line for line in said.out.splitlines() if world.names[0] in line)
    assert account.split()[-2:] == ["2.00", "unknown"]


def test_an_untracked_tres_is_unknown(used: World, command: Command) -> None:
    components = {
        "cpu": COMPONENT,
        "fpga": {"measured_unit": "hours", "accounting_type": "usage", "label": "FPGA", "unit_factor": 60},
    }
    said = command("usage", "--months", "1", "-c", used.configure(components=components))
    assert "fpga: the cluster does not count fpga" in said.out
    table = said.out.partition("FPGA, hours\n")[2]
    assert [line.split()[-1] for line in table.splitlines()[1:3]] == ["unknown", "unknown"]


def test_without_waldur_there_are_the_accounts_of_the_cluster(used: World, command: Command) -> None:
    config = used.configure()
    used.waldur.inject(Fault(method="GET", path="marketplace-provider-resources", status=403, times=None))
    said = command("usage", "--months", "1", "-c", config)
    assert said.code == 1
    assert "CPU, core-hours\n" in said.out
    rows = [line.split()[:2] for line in said.out.splitlines() if "20.00" in line or "4.00" in line]
    assert rows[:2] == [[used.names[0], "20.00"], ["others", "4.00"]]
    assert "without Waldur these are all accounts of the cluster" in said.err


def test_without_the_cluster_there_is_an_error(used: World, command: Command) -> None:
    config = used.configure()
    used.cluster.fail()
    said = command("usage", "-c", config)
    assert (said.code, said.out) == (1, "")
    assert "the accounting database does not answer" in said.err


def test_a_page_instead_of_a_table(used: World, command: Command) -> None:
    config, page = used.configure(), used.folder / "usage.html"
    said = command("usage", "--months", "2", "--html", page, "-c", config)
    assert (said.code, said.out, said.err) == (0, "", f"written to {page}\n")
    assert used.names[0] in page.read_text()
    used.cluster.fail()
    before = page.read_text()
    assert command("usage", "--months", "2", "--html", page, "-c", config).code == 1
    assert page.read_text() == before, "an old page is better than none"


def test_a_page_in_a_folder_that_is_not_there_is_an_error_and_makes_none(
    used: World, command: Command
) -> None:
    config, there = used.configure(), sorted(used.folder.iterdir())
    said = command(
        "usage", "--months", "2", "--html", used.folder / "no" / "such" / "usage.html", "-c", config
    )
    assert (said.code, said.out) == (1, "")
    assert f"there is no folder {used.folder / 'no' / 'such'}" in said.err
    assert sorted(used.folder.iterdir()) == there


def test_accounts_are_spelled_as_waldur_spells_them(used: World, command: Command) -> None:
    """SLURM has them in lower case. Where two resources differ in it, the first one's spelling is listed."""
    first, second = used.names
    used.waldur.site.change("resources", used.waldur.seed.resource_uuids[0], backend_id=first.upper())
    config = used.configure()
    (offering,) = command("usage", "--months", "1", "--json", "-c", config).document()["offerings"]
    assert {a["account"]: a["usage"][str(PRESENT)]["cpu"] for a in offering["accounts"]} == {
        first.upper(): "20.00",
        second: "0.00",
    }
    lines = command("usage", "--months", "1", "-c", config).out.splitlines()
    assert any(line.split()[-4:-3] == [first.upper()] for line in lines)


def test_an_offering_without_reports_is_said(world: World, command: Command) -> None:
    said = command("usage", "-c", world.configure(order_processing_backend="counting", reporting_backend=""))
    assert (said.code, said.out) == (0, "")
    assert "no offering here has a backend for report" in said.err
