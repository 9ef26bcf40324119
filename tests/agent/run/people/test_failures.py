# SPDX-License-Identifier: MIT
"""Names of people while a backend or Waldur fails: nobody's state is wrong, and the next pass goes on."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pytest

from agent.config.model import Mode
from agent.core.directory_actions import FailUsername
from agent.core.errors import (
    BackendUnavailable,
    WaldurError,
)
from agent.core.model import Association, Resource, ResourceState, Snapshot
from agent.run import engine
from agent.run.people import usernames
from agent.run.waldur_facts import MembershipFacts
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.conftest import (
    SiteFactory,
    accounts,
    facts,
    listed,
    logins,
    named,
    posts,
    provision,
    provisioned,
    set_state,
    states,
    waldur_of,
)
from tests.agent.run.people.scripted import Scripted


@pytest.mark.parametrize("state", ["Requested", "Creating", "Pending account linking", "Error creating"])
def test_a_backend_that_cannot_be_reached_changes_no_state(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, state: str
) -> None:
    for login in logins(waldur):
        set_state(waldur, login, state)
    scripted.opening = BackendUnavailable("LDAP is away")
    report = provisioned(site_for())
    assert set(states(waldur).values()) == {state}
    assert posts(waldur) == {}
    assert report.later is scripted.opening


def test_an_outage_in_the_middle_errs_no_user_and_keeps_what_was_made(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    names = logins(waldur)
    scripted.answers = dict.fromkeys(names[1:], BackendUnavailable("away"))
    report = provisioned(site_for())
    # the order of the listing decides who came before the outage
    assert set(states(waldur).values()) <= {"OK", "Creating", "Requested"}
    assert len([name for name in scripted.asked if name != names[0]]) == 1
    assert report.error is not None and report.error.retryable
    scripted.answers = {}
    provisioned(site_for())
    assert set(states(waldur).values()) == {"OK"}


def with_members(waldur: MembershipFacts, users: Set[str]) -> MembershipFacts:
    """The same, with an account that has these members."""
    one = Resource("r", "one", "one", ResourceState.OK, backend_id="a_one")
    inside = frozenset(Association("a_one", user) for user in users)
    return replace(waldur, resources=[one], cluster=Snapshot("memory", associations=inside))


def test_a_backend_that_is_away_is_asked_once_whether_names_were_lost(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    """The accounts have unknown members, so each person is looked for before names are made."""
    site = site_for()
    scripted.finding = BackendUnavailable("away")
    strangers = {f"stranger{number}" for number in range(site.offering.policy.small_removal + 1)}
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        report = named(run, with_members(waldur_of(site, listed(site), facts(site)), strangers))
    assert report.error is scripted.finding
    assert len(scripted.sought) == 1
    assert posts(waldur) == {}


def test_users_of_a_later_batch_are_not_begun_when_the_backend_went_away(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usernames, "AT_ONCE", 2)
    scripted.answers = dict.fromkeys(logins(waldur), BackendUnavailable("away"))
    provisioned(site_for())
    assert sorted(states(waldur).values()) == ["Creating"] * 2 + ["Requested"] * 4


def test_users_of_all_batches_get_their_names_in_one_pass(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usernames, "AT_ONCE", 2)
    assert provisioned(site_for()).error is None
    assert set(states(waldur).values()) == {"OK"}


@pytest.mark.parametrize("carried_out", [False, True], ids=["lost request", "lost answer"])
@pytest.mark.parametrize("path", ["begin_creating/$", r"[0-9a-f]{32}/$"], ids=["POST", "PATCH"])
@pytest.mark.parametrize("status", [500, 502, 403])
def test_a_request_that_fails_costs_one_person_one_pass(
    waldur: SimulatedWaldur,
    site_for: SiteFactory,
    scripted: Scripted,
    path: str,
    status: int,
    carried_out: bool,
) -> None:
    site = site_for()
    login, *others = logins(waldur)
    row = waldur.people.account(login)
    assert row is not None
    path = path if path.startswith("[") else f"{row.uuid}/{path}"
    path = path.replace("[0-9a-f]{32}", row.uuid)
    waldur.inject(Fault(method="POST|PATCH", path=path, status=status, carried_out=carried_out, times=None))
    report = provision(site, listed(site), facts(site))
    (failed,) = [outcome for outcome in report.outcomes if not outcome.done]
    assert isinstance(failed.error, WaldurError)
    assert (report.later is None) == (status == 403)
    assert not any(isinstance(outcome.action, FailUsername) for outcome in report.outcomes)
    assert {state for name, state in states(waldur).items() if name in others} == {"OK"}
    waldur.faults.clear()
    provisioned(site)
    assert set(accounts(waldur)) == set(logins(waldur))
    assert set(states(waldur).values()) == {"OK"}


def test_a_crash_between_completed_and_named_is_healed(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    """Waldur says OK, and there is no name: only the name is missing."""
    site = site_for()
    login = logins(waldur)[0]
    set_state(waldur, login, "Pending account linking")
    waldur.inject(Fault(method="PATCH", path="offering-users", status=403, times=None))
    provision(site, listed(site), facts(site))
    assert accounts(waldur)[login] == ("OK", "")
    waldur.faults.clear()
    provisioned(site)
    assert accounts(waldur)[login] == ("OK", f"n-{login}")
