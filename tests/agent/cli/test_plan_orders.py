# SPDX-License-Identifier: MIT
"""What goes with orders in `plan`, `drift` and `apply`: groups of a real directory, homes and quotas, and periodic
limits that waited. What a file showed is done, and nothing else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cli.settings import load_settings
from agent.config.model import Mode
from agent.run.periodic import mode as periodic
from agent.run.site import connect
from rig.slapd import Slapd
from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import Ended, OperatorSite
from tests.agent.cli.test_create_homedirs import run
from tests.agent.run.people.homes.private_users import command_prefix
from tests.backends.storage.world import World as HeadNode
from tests.backends.usernames.conftest import Looker, raw

MODE = Mode.ORDER_PROCESS


class OrderSite:
    """`one` is in step, with a message of a periodic policy that came in a pause; `two` is ordered."""

    def __init__(self, site: OperatorSite, command: Command, slapd: Slapd) -> None:
        self.site, self.command = site, command
        self.node = HeadNode(site.folder / "node")
        self.node.file_systems(lustre="/lustre")
        self.homes = site.folder / "homes"
        self.file = site.folder / "plan.json"
        self.looker = Looker(slapd)
        self.offering = site.waldur.seed.offering_uuid
        self.policy = site.waldur.site.add_policy(period=2)
        quota = {"provider": "lustre", "mount_point": "/lustre", "block_hardlimit": "10g"}
        backend = {**raw(slapd), "homedir_quota": quota, "periodic_limits": {"enabled": True}}
        self.config = site.configure(backend=backend)
        names = [row.username for row in site.waldur.store.offering_users if row.username]
        self.node.add_users(*names)
        users = {name: (20000 + number, self.homes / name) for number, name in enumerate(names)}
        self.prefix = command_prefix(site.folder, users)
        self.place("one")
        assert self.run("run", MODE, "--once").code == 0
        self.park("one", 7)
        self.node.forget_calls()

    def place(self, slug: str, project: int = 0) -> None:
        waldur = self.site.waldur
        project_uuid = waldur.seed.project_uuids[project]
        waldur.place_create_order(project_uuid, slug, limits={"cpu": 10}, slug=slug)

    def park(self, slug: str, share: int) -> None:
        """Let a message about an account come in a pause."""
        resource = next(each for each in self.site.waldur.store.resources if each.slug == slug)
        settings = load_settings(Path(self.config))
        document = {
            "action": "apply_periodic_settings",
            "backend_id": resource.backend_id,
            "policy_uuid": self.policy,
            "resource_uuid": resource.uuid,
            "settings": {"fairshare": share},
            "timestamp": f"2026-01-01T00:10:{share:02}",
        }
        assert self.command("pause", self.offering, "-c", self.config).code == 0
        assert periodic.run(connect(settings, settings.offerings[0], MODE), document) == []
        assert self.command("pause", self.offering, "--off", "-c", self.config).code == 0

    def run(self, *words: str) -> Ended:
        return run(self.prefix, *words, "-c", self.config)

    def planned(self) -> list[str]:
        """What a plan shows, which goes into the file as well."""
        said = self.run("plan", MODE, "--out", str(self.file))
        assert said.code == 0, said.err
        lines = [line.split("  (")[0] for line in said.out.splitlines()[1:]]
        return [line for line in lines if not line.endswith((" action", " actions"))]

    def state(self) -> object:
        """All that a pass over orders changes."""
        groups = {name: self.members(name) for name in ("a_one", "a_two", "a_three")}
        homes = sorted(path.name for path in self.homes.iterdir())
        orders = self.site.orders_and_resources()["orders"]
        return groups, homes, self.node.kept("lustre"), self.site.cluster(), orders

    def members(self, group: str) -> list[str] | None:
        found = self.looker.group(group)
        return sorted(found.all("memberUid")) if found else None

    def quotas(self) -> dict[str, str]:
        return {user: of["-B"] for user, of in self.node.kept("lustre").items()}


@pytest.fixture
def orders(site: OperatorSite, command: Command, slapd: Slapd, monkeypatch: pytest.MonkeyPatch) -> OrderSite:
    found = OrderSite(site, command, slapd)
    monkeypatch.setenv("PATH", f"{found.node.bin}:{os.environ['PATH']}")
    return found


def kinds(lines: list[str]) -> list[str]:
    """The verbs of a plan in their order, once each."""
    return list(dict.fromkeys(" ".join(line.split()[:2]) for line in lines))


def test_what_goes_with_an_order_is_planned_and_done(orders: OrderSite) -> None:
    orders.place("two", project=1)
    before = orders.state()
    lines = orders.planned()
    assert kinds(lines) == ["approve order", "claim account", "create account", "set limits", "add member",
                            "complete order", "create group", "add to", "make home", "set quota",
                            "set fairshare"]  # fmt: skip
    drift = orders.run("drift").out
    assert "order_process: 16 differences" in drift
    for counted in (
        "1 x create group",
        "2 x add to group",
        "2 x make home",
        "2 x set quota",
        "1 x set fairshare",
    ):
        assert counted in drift
    assert orders.state() == before

    said = orders.run("apply", str(orders.file), "--json")
    assert said.code == 0, said.err
    (offering,) = json.loads(said.out)["offerings"]
    assert sorted(each["text"].split("  (")[0] for each in offering["actions"]) == sorted(lines)
    team = [line.split()[2] for line in lines if line.startswith("add member")]
    assert orders.members("a_two") == sorted(team)
    assert orders.quotas() == dict.fromkeys(team, "10g")
    assert json.loads(orders.site.cluster())["accounts"]["a_one"]["fairshare"] == 7
    assert orders.planned() == ["nothing to do"]


def test_what_came_in_between_is_named_as_new_and_not_done(orders: OrderSite) -> None:
    """A message, a home, a group, and an order, one after the other."""
    orders.place("two", project=1)
    waldur, directory = orders.site.waldur, orders.looker.directory
    project = waldur.seed.project_uuids[1]
    people = {grant.user_uuid for grant in waldur.store.active_grants(project)}
    team = sorted(row.username for row in waldur.store.offering_users if row.user_uuid in people)
    home = orders.homes / team[0]
    home.mkdir()
    orders.looker.add_group("a_two", 9000, *team)
    assert "create group" not in (planned := kinds(orders.planned()))
    assert {"add member", "set fairshare"} <= set(planned)
    between: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: orders.park("one", 9), "set fairshare of a_one 1 -> 9"),
        (home.rmdir, f"make home {home} of {team[0]}"),
        (lambda: directory.delete(directory.group_dn("a_two")), "create group a_two"),
        (lambda: orders.place("three", project=1), "approve order"),
    )
    for happens, new in between:
        happens()
        before = orders.state()
        said = orders.run("apply", str(orders.file))
        assert said.code == 1
        assert f" New: {new}" in said.err
        assert orders.state() == before, new
