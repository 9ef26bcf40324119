# SPDX-License-Identifier: MIT
"""Homes in `plan`, `apply` and `drift`: the real user database and helper, and quotas of a file system that is a
stand-in. What a file showed is done, and nothing else.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import Ended, OperatorSite
from tests.agent.cli.test_create_homedirs import run
from tests.agent.run.people.homes.private_users import command_prefix
from tests.backends.storage.world import World as HeadNode

MODE = "membership_sync"


class MembersSite:
    """An allocation in step, whose two members the host does not know yet."""

    def __init__(self, site: OperatorSite, command: Command) -> None:
        self.site = site
        self.node = HeadNode(site.folder / "node")
        self.node.file_systems(lustre="/lustre")
        self.homes = site.folder / "homes"
        self.plan_file = site.folder / "plan.json"
        site.place("one")
        config = self.configure()
        for mode in ("order_process", MODE):
            assert command("run", mode, "--once", "-c", config).code == 0
        store = site.waldur.store
        team = {grant.user_uuid for grant in store.active_grants(site.waldur.seed.project_uuids[0])}
        self.names = sorted(row.username for row in store.offering_users if row.user_uuid in team)
        self.node.add_users(*self.names)

    def configure(self, *, size: str = "10g", **keys: Any) -> str:
        quota = {"provider": "lustre", "mount_point": "/lustre", "block_hardlimit": size}
        keys = {"membership_sync_backend": "slurm", **keys}
        return self.site.configure(backend={"homedir_quota": quota}, **keys)

    def run(self, *words: str, known: Sequence[str] | None = None, config: str = "") -> Ended:
        """A command on a host that knows these users, all members by default."""
        users = self.names if known is None else known
        prefix = command_prefix(
            self.site.folder, {n: (20000 + i, self.homes / n) for i, n in enumerate(users)}
        )
        return run(prefix, *words, "-c", config or self.configure())

    def planned(self, **options: Any) -> list[str]:
        """What a plan shows, which goes into the file as well."""
        said = self.run("plan", MODE, "--out", str(self.plan_file), **options)
        assert said.code == 0, said.err
        lines = said.out.splitlines()[1:]
        return [line for line in lines if not re.fullmatch(r"(\d+ \w+, )*\d+ actions?(, .*)?", line)]

    def apply(self, **options: Any) -> Ended:
        return self.run("apply", str(self.plan_file), "--json", **options)

    def made(self) -> list[str]:
        return sorted(path.name for path in self.homes.iterdir()) if self.homes.exists() else []

    def limits(self) -> dict[str, str]:
        return {user: of["-B"] for user, of in self.node.kept("lustre").items()}


@pytest.fixture
def members(site: OperatorSite, command: Command, monkeypatch: pytest.MonkeyPatch) -> MembersSite:
    found = MembersSite(site, command)
    monkeypatch.setenv("PATH", f"{found.node.bin}:{os.environ['PATH']}")
    return found


def of_homes(lines: Sequence[str]) -> list[str]:
    return [line.split("  (")[0] for line in lines]


def expected_lines(members: MembersSite, size: str = "10g") -> list[str]:
    """The lines of a plan for homes that have not been looked at yet."""
    found = []
    for name in members.names:
        found.append(f"make home {members.homes}/{name} of {name} with umask 0077")
        found.append(f"set quota of {name} on /lustre (lustre) bhard={size}")
    return found


def test_what_a_file_shows_is_done_and_then_nothing_differs(members: MembersSite) -> None:
    assert len(members.names) == 2
    assert of_homes(members.planned()) == expected_lines(members)
    drift = members.run("drift").out
    assert "membership_sync: 4 differences (2 x make home, 2 x set quota)" in drift
    assert (members.made(), members.node.calls()) == ([], [])
    report = members.apply()
    assert report.code == 0, report.err
    assert (members.made(), members.limits()) == (list(members.names), dict.fromkeys(members.names, "10g"))
    members.node.forget_calls()
    assert members.planned() == ["nothing to do"]
    assert members.node.calls() == []


def test_whom_the_host_knows_since_is_new_and_nothing_is_done(members: MembersSite) -> None:
    first, second = members.names
    assert len(members.planned(known=[first])) == 2
    said = members.run("apply", str(members.plan_file))
    assert said.code == 1
    assert f"New: make home {members.homes}/{second} of {second} with umask 0077" in said.err
    assert (members.made(), members.node.calls()) == ([], [])


def test_a_lower_quota_is_planned_and_one_beyond_the_budget_as_held(members: MembersSite) -> None:
    assert members.run("run", MODE, "--once").code == 0
    assert members.limits() == dict.fromkeys(members.names, "10g")
    lower = members.configure(size="5g")
    lines = members.planned(config=lower)
    assert of_homes(lines) == [f"set quota of {name} on /lustre (lustre) bhard=5g" for name in members.names]
    strict = members.configure(size="5g", policy={"budgets": {"quotas_lowered": {"hour": 1, "day": 1}}})
    held = members.planned(config=strict)
    assert held[0] == "nothing to do" and held[1].startswith("held: plan ")
    assert [line.strip() for line in held[2:]] == of_homes(lines)
    said = members.apply(config=strict)
    assert said.code == 0, said.err
    assert members.limits() == dict.fromkeys(members.names, "10g")
    # The next pass holds the plan that was shown.
    plan = held[1].split()[2]
    (offering,) = json.loads(members.run("run", MODE, "--once", "--json", config=strict).out)["offerings"]
    assert [each["id"][:12] for each in offering["held"]] == [plan]
    assert members.limits() == dict.fromkeys(members.names, "10g")


def test_where_homes_are_off_none_are_planned_and_none_made(members: MembersSite) -> None:
    backend = {"enable_user_homedir_account_creation": False}
    config = members.site.configure(backend=backend, membership_sync_backend="slurm")
    assert members.planned(config=config) == ["nothing to do"]
    assert members.apply(config=config).code == 0
    assert members.made() == []
