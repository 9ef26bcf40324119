# SPDX-License-Identifier: MIT
"""A simulated Waldur and a real OpenLDAP: people come to their names, whatever is cut off on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.associations import Association
from agent.core.directory_actions import (
    AddToGroup,
    DeleteGroup,
    DirectoryAction,
    MakeUser,
    RemoveFromGroup,
)
from agent.core.errors import NotApplied
from agent.plan.groups import DesiredGroups
from agent.run import engine
from agent.run.handed_on import AccountsInStep
from agent.run.people.groups import Groups
from agent.run.site import Site
from agent.state import journal
from agent.state.journal import Query
from backends.testing.memory import MemoryBackend
from rig.slapd import Slapd
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.engine import directory
from tests.agent.run.people.conftest import (
    Done,
    SiteFactory,
    accounts,
    facts,
    listed,
    logins,
    planned,
    planned_names,
    posts,
    provision,
    provision_groups,
    provisioned,
    set_state,
    states,
)
from tests.backends.usernames.conftest import Looker, raw


@pytest.fixture
def looker(slapd: Slapd) -> Any:
    looker = Looker(slapd)
    yield looker
    looker.directory.close()


@pytest.fixture
def site(site_for: SiteFactory, slapd: Slapd) -> Site:
    return site_for("ldap", **raw(slapd))


def in_directory(looker: Looker, waldur: SimulatedWaldur) -> dict[str, str]:
    """uidNumber by the name that Waldur has."""
    names = [name for _, name in accounts(waldur).values() if name]
    return {name: entry.first("uidNumber") for name in names if (entry := looker.user(name))}


def test_people_are_in_the_directory_under_the_names_that_waldur_has(
    waldur: SimulatedWaldur, site: Site, looker: Looker, slapd: Slapd
) -> None:
    provisioned(site)
    assert set(states(waldur).values()) == {"OK"}
    numbers = in_directory(looker, waldur)
    assert len(set(numbers.values())) == len(logins(waldur))
    waldur.requests.reset()
    writes, binds = slapd.operations(" MOD dn="), slapd.operations(" method=128")
    provisioned(site)
    assert posts(waldur) == {}
    assert slapd.operations(" MOD dn=") == writes
    assert slapd.operations(" method=128") - binds == 1


def test_a_name_whose_way_to_waldur_was_cut_off_is_found_again(
    waldur: SimulatedWaldur, site: Site, looker: Looker
) -> None:
    waldur.site.change("offerings", waldur.seed.offering_uuid, exposed_fields=["full_name"])
    waldur.inject(Fault(method="PATCH", path="offering-users", status=403, times=None))
    provision(site, listed(site), facts(site))
    made = {dn for dn in looker.dns() if dn.startswith("uid=")}
    assert len(made) == len(logins(waldur))
    waldur.faults.clear()
    provisioned(site)
    assert {dn for dn in looker.dns() if dn.startswith("uid=")} == made
    assert len(in_directory(looker, waldur)) == len(made)


@pytest.mark.parametrize("state", ["Requested", "Pending account linking", "Error creating"])
def test_a_server_that_is_away_errs_no_user_and_the_next_pass_goes_on(
    waldur: SimulatedWaldur, site: Site, slapd: Slapd, state: str
) -> None:
    for login in logins(waldur):
        set_state(waldur, login, state)
    slapd.stop()
    report = provisioned(site)
    assert report.later is not None
    assert (set(states(waldur).values()), posts(waldur)) == ({state}, {})
    slapd.start()
    provisioned(site)
    assert set(states(waldur).values()) == {"OK"}


@pytest.mark.parametrize("kind", ["uid", "gid"])
@pytest.mark.parametrize("state", ["Requested", "Error creating"])
def test_a_full_range_is_the_sites_fault_and_changes_no_state(
    waldur: SimulatedWaldur,
    site_for: SiteFactory,
    slapd: Slapd,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    state: str,
) -> None:
    for login in logins(waldur):
        set_state(waldur, login, state)
    narrow = {f"{kind}_range_start": 20000, f"{kind}_range_end": 20001}
    full = site_for("ldap", **raw(slapd, **narrow))
    first = provisioned(full)
    assert first.error is not None
    assert not first.error.retryable
    assert f"{kind}_range (20000 to 20001) are used up" in str(first.error)
    assert f"raise backend_settings.ldap.{kind}_range_end" in str(first.error)
    found = sorted(states(waldur).values())
    assert (found.count("OK"), "Error creating" in found) == (2, False)
    waldur.requests.reset()
    caplog.clear()
    again = provisioned(full)
    assert (str(again.error), posts(waldur)) == (str(first.error), {})
    assert caplog.text.count("are used up") == 1
    newcomer = next(login for login, each in states(waldur).items() if each != "OK")
    set_state(waldur, newcomer, state)
    waldur.requests.reset()
    provisioned(full)
    assert (states(waldur)[newcomer], posts(waldur)) == (state, {})
    provisioned(site_for("ldap", **raw(slapd, **(narrow | {f"{kind}_range_end": 20100}))))
    assert set(states(waldur).values()) == {"OK"}


def test_the_journal_records_who_was_made_in_the_directory_and_for_whom(
    waldur: SimulatedWaldur, site: Site
) -> None:
    report = provisioned(site)
    made = {o.action.user: o.action.reason for o in report.outcomes if isinstance(o.action, MakeUser)}
    assert made == {name: f"Waldur user {login}" for login, (_, name) in accounts(waldur).items()}
    login, (_, name) = next(iter(accounts(waldur).items()))
    texts = [line["action"]["text"] for line in journal.read(site.state_dir, Query(user=name))]
    assert [text.split(" ")[0] for text in texts] == ["make", "assign"]
    assert all(f"(Waldur user {login})" in text for text in texts)


def test_a_name_that_only_the_cluster_knows_is_not_given(waldur: SimulatedWaldur, site: Site) -> None:
    planned = {str(getattr(action, "username", "")) for action in planned_names(site).actions}
    taken = min(planned - {""})
    backend = site.backend
    assert isinstance(backend, MemoryBackend)
    backend.state = _with_member(backend, taken)
    provisioned(site)
    names = {name for _, name in accounts(waldur).values()}
    assert taken not in names
    assert f"{taken}2" in names
    assert backend.executed["read"] == 2  # once for the plan, once for the pass


def test_two_people_with_one_mail_do_not_share_an_account(
    waldur: SimulatedWaldur, site: Site, looker: Looker
) -> None:
    looker.add_user("shared", 5000, mail="one@example.org")
    one, two, *_ = logins(waldur)
    for login in (one, two):
        row = waldur.people.account(login)
        assert row is not None
        waldur.site.change("users", row.user_uuid, email="one@example.org")
    provisioned(site)
    assert sorted([accounts(waldur)[one], accounts(waldur)[two]]) == [
        ("Error creating", ""),
        ("OK", "shared"),
    ]


def test_a_wrong_setting_stops_names_and_reports_why(site_for: SiteFactory, waldur: SimulatedWaldur) -> None:
    report = provisioned(site_for("ldap", ldap={"uri": "http://x"}))
    assert report.error is not None and "bind_dn" in str(report.error)
    assert not report.error.retryable
    assert posts(waldur) == {}


def test_groups_follow_the_accounts(
    site: Site, looker: Looker, slapd: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    desired = DesiredGroups({"hpc_a": {"x", "y"}, "hpc_b": {"x"}, "sudo": {"x"}}, complete={"hpc_a", "sudo"})
    shown = planned(site, Groups, AccountsInStep(desired, desired.users)).actions
    assert looker.group("hpc_a") is None
    report = provision_groups(site, desired)
    assert [outcome.action for outcome in report.outcomes] == list(shown)
    assert (report.later, report.problems) == (None, [])
    assert [record for record in caplog.records if "sudo" in record.getMessage()]
    group = looker.group("hpc_a")
    assert group is not None and sorted(group.all("memberUid")) == ["x", "y"]
    changes, reads = slapd.operations(" MOD dn="), slapd.operations(" SRCH base=")
    assert provision_groups(site, desired).outcomes == ()
    assert slapd.operations(" MOD dn=") == changes
    assert slapd.operations(" SRCH base=") - reads == 2
    ended = DesiredGroups({"hpc_a": {"y"}}, complete={"hpc_a"}, ended={"hpc_b"})
    reads = slapd.operations(" SRCH base=")
    assert all(outcome.done for outcome in provision_groups(site, ended).outcomes)
    # What was changed is read once more, all of it together.
    assert slapd.operations(" SRCH base=") - reads == 4
    group = looker.group("hpc_a")
    assert group is not None and group.all("memberUid") == ("y",)
    assert looker.group("hpc_b") is None
    slapd.stop()
    assert provision_groups(site, desired).later is not None


@pytest.mark.parametrize(
    "dropped",
    [
        AddToGroup(group="hpc_a", user="y"),
        RemoveFromGroup(group="hpc_b", user="z"),
        DeleteGroup(group="hpc_old"),
    ],
    ids=lambda action: action.verb,
)
def test_a_change_of_a_group_that_the_directory_does_not_show_is_no_success(
    site_for: SiteFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dropped: DirectoryAction
) -> None:
    there = directory.install(tmp_path, monkeypatch)
    there.members = {"hpc_b": frozenset({"x", "z"}), "hpc_old": frozenset({"z"})}
    site = site_for("base", ldap=directory.SETTINGS)
    members = {"hpc_a": {"x", "y"}, "hpc_b": {"x"}}
    desired = DesiredGroups(members, complete={"hpc_b"}, ended={"hpc_old"})
    there.drops = lambda action: action == dropped
    report = provision_groups(site, desired)
    assert [o.action for o in report.outcomes if isinstance(o.error, NotApplied)] == [dropped]
    assert [o.action for o in report.outcomes if o.done] == there.applied
    assert report.later is not None
    there.drops = lambda _: False
    again = provision_groups(site, desired)
    assert [(o.action, o.error) for o in again.outcomes] == [(dropped, None)]
    assert there.members == members
    assert provision_groups(site, desired).outcomes == ()


def test_only_what_was_shown_is_done_to_groups(
    site_for: SiteFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = directory.install(tmp_path, monkeypatch)
    there.members = {"hpc_a": frozenset()}
    site, shown = site_for("base", ldap=directory.SETTINGS), AddToGroup(group="hpc_a", user="x")
    desired = DesiredGroups({"hpc_a": {"x", "y"}})
    (action,) = (
        each for each in planned(site, Groups, AccountsInStep(desired, desired.users)).actions
        if each.ids() == shown.ids()
    )  # fmt: skip
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        run.shown = frozenset({action})
        run.leave(AccountsInStep(desired, desired.users))
        engine.walk(run, [Groups])
    assert (there.applied, run.report.problems) == ([action], [])


def test_without_a_directory_there_are_no_groups(site_for: SiteFactory) -> None:
    desired = DesiredGroups({"hpc_a": {"x"}})
    assert provision_groups(site_for("base"), desired) == Done((), [], None)


def test_groups_need_no_username_backend_of_the_same_directory(
    site_for: SiteFactory, slapd: Slapd, looker: Looker
) -> None:
    assert provision_groups(site_for("base", **raw(slapd)), DesiredGroups({"hpc_a": {"x"}})).problems == []
    assert looker.group("hpc_a") is not None


def _with_member(backend: MemoryBackend, user: str) -> Any:
    return replace(backend.state, associations=frozenset({Association("root", user)}))


def test_no_password_of_the_directory_is_shown(site: Site, tmp_path: Path) -> None:
    assert "not-a-secret" not in repr(site.offering)
    assert not list(tmp_path.glob("state/*ldap*"))
