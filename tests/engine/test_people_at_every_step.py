# SPDX-License-Identifier: MIT
"""A kill at every step of what goes with accounts: people of a real directory that follows Waldur, groups of projects,
people who are deleted, and project directories. The next pass ends as an undisturbed one does, and nobody pays for it.
"""

from __future__ import annotations

import json
import os
import pwd
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.directory_actions import DeactivateUser
from agent.core.policy import Charge, Cost
from agent.core.project_directories import DirectoryRecord
from agent.run import passes
from agent.run.people.naming import opened
from agent.run.results import PassReport
from agent.run.site import Site
from agent.state import project_directories as remembered
from agent.state.store import Store
from backends.usernames.ldap.directory import ADD, DELETE, REPLACE
from backends.usernames.ldap.followed import NO_LOGIN
from backends.usernames.ldap.user_reader import DISABLED
from rig.slapd import BASE, Slapd
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OfferingUserState
from simulator.world.seed import Scenario
from tests.backends.storage.world import World as HeadNode
from tests.backends.usernames.conftest import Looker, raw
from tests.engine import directory, mortal_ldap
from tests.engine.directory import Groups
from tests.engine.mortal_ldap import Tree
from tests.engine.worlds import Moment, charged, killed_everywhere, with_room_for
from tests.membership.world import World
from tests.usernames.test_followed import FOLLOWED, give

TEAM = ("ann", "bob", "cid", "dee", "eve", "fay", "gus", "hal", "ida", "joe", "kim")
PROJECTS = f"ou=projects,{BASE}"
CLUSTER = f"cn=cluster,ou=Groups,{BASE}"
BY_HAND = f"cn=benchmarks,{PROJECTS}"
NO_HOMES = {"enable_user_homedir_account_creation": False}


@pytest.fixture
def looker(slapd: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looker]:
    mortal_ldap.install(tmp_path, monkeypatch)
    looker = Looker(slapd)
    looker.directory.add(PROJECTS, ["organizationalUnit", "top"], {"ou": ["projects"]})
    yield looker
    looker.directory.close()


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    scenario = Scenario(members_per_project=len(TEAM), projects_per_customer=1, allocations_per_project=1)
    with SimulatedWaldur("8.1", scenario=scenario) as server:
        server.site.change("offerings", server.seed.offering_uuid, plugin_options={})
        for uid, (login, name) in enumerate(zip(team_of(server), TEAM, strict=True), 5001):
            give(server, login, name, uid)
        yield server


def team_of(waldur: SimulatedWaldur) -> list[str]:
    """The logins of the only project's members, who have the names of TEAM."""
    return waldur.seed.members[waldur.seed.project_uuids[0]]


def members_pass(site: Site) -> PassReport:
    report = passes.sync_members(site)
    assert (report.error, report.failed, report.held) == (None, False, ()), report.as_json()
    return report


class Beside(World):
    """Accounts in step, with what goes beside them, until something is due."""

    def __init__(
        self, waldur: SimulatedWaldur, folder: Path, beside: dict[str, Any], **offering: Any
    ) -> None:
        super().__init__(waldur, folder, backend={**beside, **NO_HOMES}, **offering)
        self.fill()
        self.settled()
        self.account, *self.more = sorted(name for name in self.cluster.accounts if name.startswith("a_"))
        self.fall_due()
        with Store(self.site.state_dir).write() as db:
            db.run("DELETE FROM charges")  # of the people who were made for it
        self.keep()
        self.site = with_room_for(self.site, Counter(charge.cost for charge in self.charges()))
        self.moment = Moment(waldur, self.site, folder, beside=self.again)

    def fall_due(self) -> None:
        raise NotImplementedError

    def keep(self) -> None:
        """Note what stands beside the cluster, for `again`."""
        raise NotImplementedError

    def again(self) -> None:
        """Let what stands beside the cluster be as it was."""
        raise NotImplementedError

    def state(self) -> object:
        """All that a pass changes, but for times."""
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


class Directed(Beside):
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

    def state(self) -> object:
        return self.tree.entries(), super().state()

    def login(self, name: str) -> str:
        return self.person(name)

    def user(self, name: str) -> dict[str, tuple[str, ...]]:
        """The values of a user's entry; none where there is no entry."""
        entry = self.looker.user(name)
        return dict(entry.values) if entry else {}

    def group(self, name: str) -> tuple[str, set[str]]:
        """The number of a group and its members; none where there is none."""
        group = self.looker.group(name)
        return (group.first("gidNumber"), set(group.all("memberUid"))) if group else ("", set())


def survives(world: Beside, *, start: int, stride: int) -> int:
    """Let a pass die everywhere. Return how many places it has."""
    site = world.moment.again()
    members_pass(site)
    wanted = world.state()

    def then(site: Site, place: str) -> None:
        changes = [world.changes(members_pass(site)) for _ in range(2)]
        assert world.wrong() == [], place
        assert world.state() == wanted, place
        assert (changes[1], charged(site)) == ([], world.charges()), place
        twice = [action for action, count in Counter(world.backend.applied).items() if count > 1]
        assert twice == [], place

    return killed_everywhere(world.moment, members_pass, then, start=start, stride=stride)


# People of a directory that follows Waldur ------------------------------------------------------------


class Followed(Directed):
    """ann is renamed, bob comes back, cid has another shell and dee other numbers, eve's entry is a stranger's, fay's
    was deleted by hand, and nina is new.
    """

    def fall_due(self) -> None:
        site, there = self.waldur, self.looker.directory
        self.looker.add_group("staff", 9000, "ann", "zed")
        with opened(self.site, {}, None) as backend:
            assert backend is not None
            (left,) = backend.apply([DeactivateUser(user="bob", login=self.login("bob"), uid=5002)])
            assert left.done
        give(site, self.login("cid"), "cid", 5003, login_shell="/bin/zsh")
        give(site, self.login("dee"), "dee", 6004)
        stranger = {"employeeNumber": [(REPLACE, ["stranger"])], "uidNumber": [(REPLACE, ["7777"])]}
        there.modify(there.user_dn("eve"), stranger)
        there.delete(there.user_dn("fay"))
        there.delete(there.group_dn("fay"))
        self.join("nina")
        give(site, "nina", "nina", 5020)
        give(site, self.login("ann"), "anna", 5001)

    def charges(self) -> set[Charge]:
        people = {Charge(Cost.MEMBERS_REMOVED, "", name) for name in ("anna", "cid", "dee")}
        people |= {Charge(Cost.PEOPLE_MADE, "", name) for name in ("fay", "nina")}
        people |= {Charge(Cost.PEOPLE_RENAMED, "", "ann")}
        return {Charge(Cost.MEMBERS_REMOVED, self.account, "ann"), *people}

    def wrong(self) -> list[str]:
        numbers = {name: uid for uid, name in enumerate(TEAM, 5001) if name not in ("ann", "eve")}
        numbers |= {"anna": 5001, "dee": 6004, "nina": 5020}
        users = {**numbers, "eve": 7777}
        checks = {
            "ann's entry": self.user("ann") == {},
            "places in groups": self.group("staff")[1] == {"anna", "zed"},
            "bob's shell": NO_LOGIN not in self.user("bob").get("loginshell", ()),
            "cid's shell": self.user("cid").get("loginshell") == ("/bin/zsh",),
            f"members: {self.members(self.account)}": self.members(self.account) == set(users),
            f"its group: {self.group(self.account)}": self.group(self.account)[1] == set(users),
        }
        found = [name for name, is_right in checks.items() if not is_right]
        found += [name for name, uid in users.items() if self.user(name).get("uidnumber") != (str(uid),)]
        found += [f"notes of {name}" for name in users if self.user(name).get("description")]
        groups = {"ann": "", **{name: str(uid + 1000) for name, uid in numbers.items()}}
        found += [f"group of {name}" for name, gid in groups.items() if self.group(name)[0] != gid]
        return found


def test_people_who_follow_waldur(
    waldur: SimulatedWaldur, tmp_path: Path, slapd: Slapd, looker: Looker
) -> None:
    ldap = raw(slapd, **FOLLOWED, on_posix_mismatch="adopt")
    world = Followed(waldur, tmp_path, looker, ldap, username_management_backend="ldap")
    assert survives(world, start=1, stride=5) > 25


# Groups that Waldur has for projects ------------------------------------------------------------------


class Grouped(Directed):
    """The group of one project was deleted and taken off a list by hand; that of another has a stranger in it, another
    number and description, and a member is missing; one is listed and does not belong there.
    """

    def fall_due(self) -> None:
        there = self.looker.directory
        values = {"cn": ["cluster"], "member": [BY_HAND]}
        there.add(CLUSTER, ["groupOfNames", "top"], values)
        people = self.waldur.people
        self.other, third = people.add_project("other"), people.add_project("third")
        for login, name in ((team_of(self.waldur)[0], "ann"), (team_of(self.waldur)[1], "bob")):
            people.add_member(self.other, login, account=name)
            people.add_member(third, login, account=name)
        for project, name, gid in ((self.other, "zoo", 20002), (third, "old", 20003)):
            self.waldur.site.add_project_group(project, name, gid)
        self.waldur.site.add_project_group(self.waldur.seed.project_uuids[0], "physics", 20001)
        self.settled()
        there.delete(f"cn=physics,{PROJECTS}")
        changes: dict[str, list[tuple[Any, list[str]]]] = {
            "gidNumber": [(REPLACE, ["7777"])],
            "memberUid": [(DELETE, ["ann"]), (ADD, ["zed"])],
            "description": [(REPLACE, ["organization=wrong", "by hand"])],
        }
        there.modify(f"cn=zoo,{PROJECTS}", changes)
        names = [BY_HAND, f"cn=old,{PROJECTS}"]
        there.modify(CLUSTER, {"member": [(REPLACE, names)]})

    def charges(self) -> set[Charge]:
        lost = (("zoo", ""), ("zoo", "zed"), ("old", "ann"), ("old", "bob"))
        return {Charge(Cost.GROUP_MEMBERS_REMOVED, group, user) for group, user in lost}

    def wrong(self) -> list[str]:
        groups = {
            entry.first("cn"): entry for entry in self.looker.directory.search(PROJECTS, "(cn=*)", ["*"])
        }
        found = {
            name: (entry.first("gidNumber"), set(entry.all("memberUid"))) for name, entry in groups.items()
        }
        two = {"ann", "bob"}
        wanted = {"physics": ("20001", set(TEAM)), "zoo": ("20002", two), "old": ("20003", two)}
        listed = self.looker.group("cluster")
        said = set(groups["zoo"].all("description")) if "zoo" in groups else set[str]()
        checks = {
            f"groups: {found}": found == wanted,
            f"listed: {listed}": listed is not None
            and set(listed.all("member")) == {BY_HAND, f"cn=physics,{PROJECTS}"},
            f"description: {said}": len(said) == 2 and "by hand" in said and "organization=wrong" not in said,
            "the account": self.members(self.account) == self.group(self.account)[1] == set(TEAM),
        }
        return [name for name, is_right in checks.items() if not is_right]


def test_groups_of_projects(waldur: SimulatedWaldur, tmp_path: Path, slapd: Slapd, looker: Looker) -> None:
    groups = {
        "enabled": True,
        "on_gid_mismatch": "adopt",
        "organization_description": "organization={slug}",
        "parents": [{"dn": CLUSTER}],
    }
    world = Grouped(waldur, tmp_path, looker, raw(slapd, project_groups=groups))
    assert survives(world, start=2, stride=3) > 10


# People who are deleted -------------------------------------------------------------------------------


class Leaving(Directed):
    """Waldur wants ann deleted, who is in the account, bob, of whom it was begun, and nina, who is in none."""

    GONE = ("ann", "bob", "nina")
    is_disabled = True
    staff = frozenset({"zed"})

    def fall_due(self) -> None:
        people = self.waldur.people
        people.add_member(people.add_project("other"), "nina", account="nina")
        give(self.waldur, "nina", "nina", 5020)
        self.settled()
        self.looker.add_group("staff", 9000, "ann", "nina", "zed")
        people.set_account(self.login("ann"), "ann", state=OfferingUserState.REQUESTED_DELETION)
        people.set_account(self.login("bob"), "bob", state=OfferingUserState.DELETING)
        people.set_account("nina", "nina", state=OfferingUserState.REQUESTED_DELETION)

    def charges(self) -> set[Charge]:
        of_account = {Charge(Cost.MEMBERS_REMOVED, self.account, user) for user in ("ann", "bob")}
        return of_account | {Charge(Cost.MEMBERS_REMOVED, "", user) for user in self.GONE}

    def wrong(self) -> list[str]:
        left = set(TEAM) - {"ann", "bob"}
        entries = [self.user(name) for name in self.GONE]
        kept = [DISABLED in entry["description"] for entry in entries if entry]
        rows = {row.username: row.state for row in self.waldur.store.offering_users}
        sent = self.waldur.request_counts()
        told = [
            sent.get(f"POST marketplace-offering-users/{{uuid}}/{what}/", 0)
            for what in ("set_deleting", "set_deleted", "set_error_deleting")
        ]
        checks = {
            f"entries: {entries}": kept == ([True] * 3 if self.is_disabled else []),
            "others": all(self.user(name) and not self.user(name).get("description") for name in left),
            f"groups: {self.group('staff')}": self.group("staff")[1] == self.staff,
            "the account": self.members(self.account) == self.group(self.account)[1] == left,
            f"states: {rows}": {name for name, state in rows.items() if state is OfferingUserState.DELETED}
            == set(self.GONE),
            f"told: {told}": told == [2, 3, 0],
        }
        return [name for name, is_right in checks.items() if not is_right]


class Deleted(Leaving):
    """Their entries are deleted; groups that are not the agent's name them on."""

    is_disabled = False
    staff = frozenset({"ann", "nina", "zed"})


@pytest.mark.parametrize(("how", "kind"), [("disable", Leaving), ("delete", Deleted)])
def test_people_who_are_deleted(
    waldur: SimulatedWaldur, tmp_path: Path, slapd: Slapd, looker: Looker, how: str, kind: type[Leaving]
) -> None:
    ldap = raw(slapd, **FOLLOWED, on_departure=how)
    world = kind(waldur, tmp_path, looker, ldap, username_management_backend="ldap")
    assert survives(world, start=3, stride=3) > 10


# Project directories ----------------------------------------------------------------------------------


OFFSET = 500
LIMIT = {"-B": "1000"}


class Housed(Beside):
    """One account has no directory, of one the quota was raised by hand and our record lost, in the place of one is a
    file, and one was left unfinished.
    """

    def __init__(self, waldur: SimulatedWaldur, folder: Path, groups: Groups, node: HeadNode) -> None:
        self.groups, self.node = groups, node
        self.base = folder / "projects"
        self.base.mkdir(mode=0o755)
        quota = {"mount_point": "/lustre", "block_hardlimit": 1000, "project_id_offset": OFFSET}
        place = {"enabled": True, "base_path": str(self.base), "lustre_quota": quota}
        super().__init__(waldur, folder, {"ldap": directory.SETTINGS, "project_directory": place})

    def fall_due(self) -> None:
        self.raised, self.taken, self.begun = self.more
        (self.base / self.raised / "data").write_text("theirs")
        for account in (self.account, self.taken, self.begun):
            (self.base / account).rmdir()
        (self.base / self.taken).write_text("theirs")
        (self.base / f".{self.begun}.new").mkdir(mode=0o700)
        self.quotas = {self.project(self.raised): {"-B": "9000"}, self.project(self.taken): LIMIT}
        lost = dict.fromkeys((self.account, self.raised, self.begun), DirectoryRecord())
        remembered.write(self.site.state_dir, self.site.offering.uuid, lost)

    def keep(self) -> None:
        self.tags = self.node.kept("lustre_projects")

    def again(self) -> None:
        for name in (self.account, self.begun, f".{self.account}.new", f".{self.begun}.new"):
            if (self.base / name).exists():
                (self.base / name).rmdir()
        (self.base / f".{self.begun}.new").mkdir(mode=0o700)
        (self.node.folder / "lustre").write_text(json.dumps(self.quotas))
        (self.node.folder / "lustre_projects").write_text(json.dumps(self.tags))
        self.node.forget_calls()

    def project(self, account: str) -> str:
        """The name of an account's quota."""
        return f"project {self.groups.number_of(account) + OFFSET}"

    def state(self) -> object:
        seen = {path.name: path.stat() for path in self.base.iterdir()}
        about = {name: (each.st_mode, each.st_uid, each.st_gid) for name, each in seen.items()}
        return about, self.node.kept("lustre"), super().state()

    def charges(self) -> set[Charge]:
        return {Charge(Cost.QUOTAS_LOWERED, self.raised)}

    def wrong(self) -> list[str]:
        names = {self.account, *self.more}
        housed = names - {self.taken}
        nobody, tags = pwd.getpwnam("nobody").pw_uid, self.node.kept("lustre_projects")
        quotas = self.node.kept("lustre")
        set_ = Counter(call[3] for call in self.node.calls("lfs") if call[1] == "setquota")
        checks = {
            f"there: {os.listdir(self.base)}": set(os.listdir(self.base)) == names,
            "what was there": (self.base / self.taken).read_text() == "theirs"
            and (self.base / self.raised / "data").read_text() == "theirs",
            f"quotas: {quotas}": quotas == {self.project(name): LIMIT for name in names},
            # A quota that nobody knows to be set is set once more.
            f"set: {set_}": len(set_) == 3 and max(set_.values()) <= 2,
        }
        found = [name for name, is_right in checks.items() if not is_right]
        for name in housed & set(os.listdir(self.base)):
            number, seen = self.groups.number_of(name), (self.base / name).stat()
            tag = tags.get(str(seen.st_ino))
            if (seen.st_uid, seen.st_gid, tag) != (nobody, number, [str(number + OFFSET), "P"]):
                found.append(f"{name}: {seen.st_uid}:{seen.st_gid}, project {tag}")
        return found


@pytest.mark.skipif(os.geteuid() != 0, reason="folders are given to other users by root only")
def test_project_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = HeadNode(tmp_path / "node")
    node.file_systems(lustre="/lustre")
    monkeypatch.setenv("PATH", f"{node.bin}:{os.environ['PATH']}")
    groups = directory.install(tmp_path, monkeypatch)
    scenario = Scenario(members_per_project=2, projects_per_customer=1, allocations_per_project=4)
    with SimulatedWaldur(scenario=scenario) as waldur:
        world = Housed(waldur, tmp_path, groups, node)
        assert survives(world, start=1, stride=9) > 25
