# SPDX-License-Identifier: MIT
"""Worlds of what goes with accounts: groups, directories and entries of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.config.model import Mode
from agent.core.policy import Charge
from agent.run import passes
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state.store import Store
from rig.slapd import BASE, Slapd
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.engine import kills
from tests.agent.run.engine.mortal_ldap import Tree
from tests.agent.run.engine.worlds import (
    Moment,
    charged,
    cut_off_everywhere,
    erred,
    killed_everywhere,
    with_room_for,
)
from tests.backends.usernames.conftest import Looker
from tests.world import World

TEAM = ("ann", "bob", "cid", "dee", "eve", "fay", "gus", "hal", "ida", "joe", "kim")
PROJECTS = f"ou=projects,{BASE}"
CLUSTER = f"cn=cluster,ou=Groups,{BASE}"
BY_HAND = f"cn=benchmarks,{PROJECTS}"
NO_HOMES = {"enable_user_homedir_account_creation": False}


def members_pass(site: Site) -> PassReport:
    report = passes.sync_members(site)
    assert (report.error, report.failed, report.held) == (None, False, ()), report.as_json()
    return report


class Dependents(World):
    """Accounts in step, with what depends on them, until something is due."""

    def __init__(
        self, waldur: SimulatedWaldur, folder: Path, backend: dict[str, Any], **offering: Any
    ) -> None:
        super().__init__(waldur, folder, backend={**backend, **NO_HOMES}, **offering)
        self.fill()
        self.converge()
        self.account, *self.more = sorted(name for name in self.cluster.accounts if name.startswith("a_"))
        self.fall_due()
        with Store(self.site.state_dir).write() as db:
            db.run("DELETE FROM charges")  # of the people who were made for it
        self.keep()
        self.site = with_room_for(self.site, Counter(charge.cost for charge in self.charges()))
        self.moment = Moment(waldur, self.site, folder, restore_rest=self.again)

    def fall_due(self) -> None:
        raise NotImplementedError

    def keep(self) -> None:
        """Note what is outside of the cluster, for `again`."""
        raise NotImplementedError

    def again(self) -> None:
        """Restore what is outside of the cluster."""
        raise NotImplementedError

    def state(self) -> object:
        """All that a pass changes, but for times, as it is now; `wrong` judges what was seen last."""
        store = self.waldur.store
        people = {row.uuid: (row.username, row.state) for row in store.offering_users}
        resources = {row.uuid: (row.backend_id, row.state) for row in store.resources}
        return self.cluster, people, resources

    def charges(self) -> set[Charge]:
        """What all of it costs people."""
        raise NotImplementedError

    def wrong(self) -> list[str]:
        """Everything that is not as it must be in the end."""
        raise NotImplementedError

    def lost(self, wanted: object) -> list[str]:
        """What is gone of that which stands in the beginning and in a state `wanted` in the end."""
        return []

    def finished(self, site: Site, wanted: object, place: str) -> None:
        """The passes after a disturbed one do the rest, once."""
        changes = [self.changes(members_pass(site)) for _ in range(2)]
        state = self.state()
        assert self.wrong() == [], place
        assert state == wanted, place
        assert (changes[1], charged(site)) == ([], self.charges()), place
        twice = [action for action, count in Counter(self.backend.applied).items() if count > 1]
        assert twice == [], place


class Directed(Dependents):
    """With a real directory."""

    def __init__(
        self, waldur: SimulatedWaldur, folder: Path, looker: Looker, ldap: dict[str, Any], **offering: Any
    ) -> None:
        self.looker = looker
        super().__init__(waldur, folder, ldap, **offering)

    def keep(self) -> None:
        self.tree = Tree(self.looker.directory)

    def again(self) -> None:
        self.tree.again()

    def lost(self, wanted: Any) -> list[str]:
        end, _ = wanted
        now = self.tree.entries()
        return [
            f"{name} of {dn}"
            for dn, entry in self.tree.kept.items()
            for name, values in entry.items()
            if not values & end.get(dn, {}).get(name, frozenset()) <= now.get(dn, {}).get(name, frozenset())
        ]

    def state(self) -> object:
        self.there = self.tree.entries()
        return self.there, super().state()

    def outlives(self, slapd: Slapd) -> None:
        def stop() -> None:
            self.looker.directory.close()
            slapd.stop()

        outlives(self, stop, slapd.start)

    def login(self, name: str) -> str:
        return self.person(name)

    def user(self, name: str) -> Mapping[str, frozenset[str]]:
        """The values of the entry with this name in the last `state`; none where there was no entry."""
        return self._with("uid", name)

    def group(self, name: str) -> tuple[str, set[str]]:
        """The number of a group and its members in the last `state`; none where there was none."""
        group = self._with("cn", name)
        return "".join(group.get("gidnumber", ())), set(group.get("memberuid", ()))

    def _with(self, attribute: str, value: str) -> Mapping[str, frozenset[str]]:
        found = [entry for entry in self.there.values() if value in entry.get(attribute, ())]
        assert len(found) <= 1, f"{attribute} {value} twice"
        return found[0] if found else {}


def survives(world: Dependents) -> int:
    """Let a pass die everywhere. Return how many places it has."""
    members_pass(world.moment.again())
    wanted = world.state()

    def then(site: Site, place: str) -> None:
        world.finished(site, wanted, place)

    return killed_everywhere(world.moment, members_pass, then)


def outlives(world: Dependents, stop: Callable[[], None], start: Callable[[], None]) -> None:
    """Waldur, the cluster and then the directory, which these `stop` and `start`, are away from each mode on. Nothing
    goes that stays in the end, nothing is in error, and the report names it where something is left.
    """

    def leaves(answers: bool) -> None:
        world.backend.outage = kills.in_memory if answers else lambda _: True

    waldur = world.waldur
    parts: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "Waldur": (lambda: waldur.inject(Fault(times=None)), waldur.faults.clear),
        "the cluster": (lambda: leaves(False), lambda: leaves(True)),
        "the directory": (stop, start),
    }
    members_pass(world.moment.again())
    wanted, due = world.state(), set(world.backend.applied)
    failed_passes = dict.fromkeys(parts, 0)
    for part, (goes, comes) in parts.items():
        start = int(part == "Waldur")
        for site, report, between in cut_off_everywhere(
            world.moment, Mode.MEMBERSHIP_SYNC, goes, start=start
        ):
            place = f"{part} {between}"
            comes()
            assert set(world.backend.applied) <= due, place
            assert (erred(waldur), world.lost(wanted)) == (set(), []), place
            failed_passes[part] += report.failed
            assert report.failed or world.state() == wanted, f"{place}: {report.as_json()}"
            world.finished(site, wanted, place)
    assert failed_passes["the directory"], failed_passes
