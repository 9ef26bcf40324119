# SPDX-License-Identifier: MIT
"""`plan`: what would be done, in three ways to print it, and nothing is changed by any of them."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable

import pytest

from simulator.server.faults import Fault
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import Ended, OperatorSite

PLAN = ("plan", "order_process")


def reads_as_a_plan(said: Ended) -> None:
    lines = said.out.splitlines()
    assert lines[0] == "# Test SLURM"
    assert lines.pop() == "1 order, 9 actions"
    verbs = [" ".join(line.split()[:2]) for line in lines[1:]]
    assert verbs == ["approve order", "claim account", *["create account"] * 3, "set limits",
                     *["add member"] * 2, "complete order"]  # fmt: skip


def reads_as_json(said: Ended) -> None:
    (offering,) = said.document()["offerings"]
    assert set(offering) == {
        "offering", "name", "actions", "held", "refused", "notes", "unplanned", "error",
    }  # fmt: skip
    assert [action["action"] for action in offering["actions"]][:3] == [
        "ApproveOrder",
        "ClaimAccount",
        "CreateAccount",
    ]
    assert offering["error"] is None


def reads_as_commands(said: Ended) -> None:
    title, *lines = said.out.splitlines()
    assert title == "# Test SLURM"
    assert len(lines) == 5
    assert all("sacctmgr --immediate" in line for line in lines)


WAYS: dict[str, tuple[tuple[str, ...], int, Callable[[Ended], None]]] = {
    "text": ((), 0, reads_as_a_plan),
    "json, exit code": (("--json", "--exit-code"), 3, reads_as_json),
    "commands": (("--commands",), 0, reads_as_commands),
}


@pytest.mark.parametrize(("options", "code", "reads_well"), WAYS.values(), ids=WAYS)
def test_a_plan_is_printed_and_nothing_is_changed(
    site: OperatorSite,
    command: Command,
    options: tuple[str, ...],
    code: int,
    reads_well: Callable[[Ended], None],
) -> None:
    site.place("First light")
    before = (site.orders_and_resources(), site.cluster())
    said = command(*PLAN, *options, "-c", site.configure())
    assert said.code == code
    assert said.err == ""
    reads_well(said)
    assert (site.orders_and_resources(), site.cluster()) == before
    assert site.waldur.requests.count("POST *") == 0


def test_the_commands_can_be_run_as_they_are_printed_and_a_pass_leaves_nothing_to_do(
    site: OperatorSite, command: Command
) -> None:
    """Names of projects have spaces: what is printed goes through a shell unharmed."""
    site.place("First light; or $HOME")
    said = command(*PLAN, "--commands", "-c", site.configure())
    script = "\n".join(said.out.splitlines())
    for line in said.out.splitlines()[1:]:
        assert shlex.split(line)[0].endswith("sacctmgr")
    subprocess.run(["bash", "-euc", script], check=True, capture_output=True)
    assert command("run", "order_process", "--once", "-c", site.configure()).code == 0
    after = command(*PLAN, "--exit-code", "-c", site.configure())
    assert (after.code, after.out) == (0, "# Test SLURM\nnothing to do\n")


def test_orders_that_cannot_be_planned_are_listed(site: OperatorSite, command: Command) -> None:
    """Here the resource of one of two orders cannot be read."""
    order, other = site.place("First light"), site.place("Second light")
    resource = site.waldur.order(order).resource_uuid
    site.waldur.inject(Fault(method="GET", path=f"resources/{resource}/$", status=404, times=None))
    said = command(*PLAN, "-c", site.configure())
    assert f"order {order} (Create) stuck: GET marketplace-provider-resources/{resource}/" in said.out
    assert f"approve order {other}" in said.out


def test_the_plan_of_one_resource_is_about_it_alone(site: OperatorSite, command: Command) -> None:
    path = site.configure(membership_sync_backend="slurm")
    for name in ("one", "two"):
        site.place(name)
    assert command("run", "order_process", "--once", "-c", path).code == 0
    resource = next(r for r in site.waldur.site.resources() if r.slug == "one")
    for each in site.waldur.site.resources():
        site.waldur.site.change("resources", each.uuid, backend_metadata={"qos": "old"})
    said = command("plan", "membership_sync", "--resource", resource.uuid, "--json", "-c", path)
    (offering,) = said.document()["offerings"]
    assert [(a["action"], a["resource"]) for a in offering["actions"]] == [("ReportMetadata", resource.uuid)]
    refused = command("plan", "order_process", "--resource", resource.uuid, "-c", path)
    assert (refused.code, "--resource" in refused.err) == (2, True)
    for name in ("a_one", "o", resource.uuid[:5]):
        named = command("plan", "membership_sync", "--resource", name, "-c", path).out.splitlines()
        assert named[1].endswith(f"(resource {resource.uuid}, one)")
        assert named[2:] == ["1 action"]
    for name, words in (
        ("a_", "'a_' could be several resources: one (a_one, "),
        ("x", "there is no resource 'x'"),
    ):
        failed = command("plan", "membership_sync", "--resource", name, "-c", path)
        assert (failed.code, words in failed.err) == (1, True), failed.err
