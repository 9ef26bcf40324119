# SPDX-License-Identifier: MIT
"""Names and states of offering users in a simulated Waldur, with a backend that answers what a test sets."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.actions import only
from agent.core.directory_actions import AssignUsername, BeginUsername, UpdateProfile
from agent.core.errors import (
    AccountLinkingRequired,
    AdditionalValidationRequired,
    BackendError,
    WaldurError,
)
from agent.run import engine
from agent.run.handed_on import NamedPeople
from agent.run.people.usernames import Usernames
from agent.state import given_usernames
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.people.conftest import (
    SCENARIO,
    SiteFactory,
    accounts,
    facts,
    forget_names,
    listed,
    logins,
    named,
    planned_names,
    posts,
    provision,
    provisioned,
    set_state,
    site_on,
    states,
    waldur_of,
)
from tests.agent.run.people.scripted import Scripted


def test_new_people_get_names_and_the_next_pass_sends_nothing(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    site = site_for()
    report = provisioned(site)
    assert accounts(waldur) == {login: ("OK", f"n-{login}") for login in logins(waldur)}
    assert (report.error, report.later) == (None, None)
    count = len(logins(waldur))
    kinds = [type(outcome.action) for outcome in report.outcomes]
    assert (kinds.count(BeginUsername), kinds.count(AssignUsername)) == (count, count)
    assert posts(waldur) == {
        "POST marketplace-offering-users/{uuid}/begin_creating/": count,
        "PATCH marketplace-offering-users/{uuid}/": count,
    }
    users, options = listed(site), facts(site)
    waldur.requests.reset()
    sent = site.client.sent.copy()
    again = provision(site, users, options)
    assert (again.users, again.outcomes) == (tuple(users), ())
    assert (waldur.request_counts(), site.client.sent) == ({}, sent)
    assert scripted.opened == 0


def test_a_plan_shows_all_of_it_and_changes_nothing(waldur: SimulatedWaldur, site_for: SiteFactory) -> None:
    site = site_for("template")
    before = waldur.site.state()["offering_users"]
    planned = planned_names(site).actions
    assert waldur.site.state()["offering_users"] == before
    report = provisioned(site)
    assert sorted(map(str, planned)) == sorted(str(outcome.action) for outcome in report.outcomes)
    assert planned_names(site).actions == ()


def test_a_pass_that_does_not_apply_leaves_the_people_and_reports_what_comes_later(
    waldur: SimulatedWaldur, site_for: SiteFactory
) -> None:
    site = site_for("template")
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, applies=False) as run:
        given = waldur_of(site, listed(site), facts(site))
        waldur.requests.reset()
        run.leave(given)
        engine.walk(run, [Usernames])
    assert run.result(NamedPeople) == NamedPeople(tuple(given.users))
    assert run.report.notes == ["who gets a username now joins the accounts in the next pass"]
    assert posts(waldur) == {}
    (work,) = run.works
    assert len(only(AssignUsername, work.decision.allowed)) == len(given.users)


def test_only_who_was_shown_gets_a_name_and_it_need_not_be_the_one_that_was_shown(
    waldur: SimulatedWaldur, site_for: SiteFactory
) -> None:
    site = site_for("template")
    persons = {user.uuid: user.user_uuid for user in listed(site)}
    one, *_ = only(AssignUsername, planned_names(site).actions)
    begin = BeginUsername(offering_user=one.offering_user, reason=one.reason)
    with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
        run.shown = frozenset({begin, replace(one, username="another")})
        done = named(run, waldur_of(site, listed(site), facts(site)))
    assert (done.problems, done.error) == ([], None)
    assert {user.user_uuid for user in listed(site) if user.username} == {persons[one.offering_user]}
    assert run.result(NamedPeople) == NamedPeople(done.users)
    provisioned(site)
    assert all(user.username for user in listed(site))


def test_two_people_at_two_offerings_of_one_cluster_never_get_one_name(
    waldur: SimulatedWaldur, site_for: SiteFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """None of them is on the cluster yet. Who has a name at the other offering has the same one here."""
    site = replace(site_for("template"), neighbours={"b": "Neighbour"})
    planned = only(AssignUsername, planned_names(site).actions)
    persons = {user.uuid: user.user_uuid for user in listed(site)}
    wanted = {persons[action.offering_user]: action.username for action in planned}
    mine, taken = sorted(wanted)[:2]
    given_usernames.write(site.state_dir, "b", {"stranger": wanted[taken], mine: wanted[mine]})
    given_usernames.write(site.state_dir, "c", {"faraway": wanted[mine]})
    provisioned(site)
    names = {user.user_uuid: user.username for user in listed(site)}
    assert names[taken] not in ("", wanted[taken])
    assert names[mine] == wanted[mine]
    # Waldur itself can give a name twice: that is reported, in each pass.
    given_usernames.write(site.state_dir, "b", {"stranger": names[mine]})
    for _ in range(2):
        with engine.passing(site, Mode.MEMBERSHIP_SYNC, is_recorded=False) as run:
            named(run, waldur_of(site, listed(site), facts(site)))
        assert [note for note in run.report.notes if f"have one username: {names[mine]}. Each can" in note]
    assert caplog.text.count("have one username") == 1


OUTCOMES = {
    "a name": ("n", "OK"),
    "no name": ("", "Creating"),
    "linking": (AccountLinkingRequired("link", comment_url="https://x/"), "Pending account linking"),
    "validation": (AdditionalValidationRequired("sign"), "Pending additional validation"),
    "a fault": (BackendError("no such schema"), "Error creating"),
    "a mistake of the plugin": (KeyError("oops"), "Creating"),
    "a name that is none": ("a b", "Error creating"),
    "a name with a comma": ("a,b", "Error creating"),
    "a name in capitals": ("Smith", "Error creating"),
    "root": ("root", "Error creating"),
    "an account of the system": ("daemon", "Error creating"),
}


def test_everybody_gets_their_own_outcome(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    """One after the other of the kinds, each together with people with whom nothing is wrong."""
    site = site_for()
    first, *others = logins(waldur)
    for what, (answer, state) in OUTCOMES.items():
        for login in logins(waldur):
            set_state(waldur, login, "Requested")
        forget_names(site)
        scripted.answers = {first: answer}
        provisioned(site)
        assert states(waldur) == {first: state, **dict.fromkeys(others, "OK")}, what


def test_what_the_person_must_do_stands_in_waldur_and_is_not_said_twice(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    site = site_for()
    login = logins(waldur)[0]
    scripted.answers = {login: AccountLinkingRequired("link it", comment_url="https://id.example.org/")}
    provisioned(site)
    row = waldur.people.account(login)
    assert row is not None
    assert (row.service_provider_comment, row.service_provider_comment_url) == (
        "link it", "https://id.example.org/",
    )  # fmt: skip
    waldur.requests.reset()
    provisioned(site)
    assert posts(waldur) == {}
    scripted.answers[login] = AdditionalValidationRequired("sign it")
    provisioned(site)
    assert states(waldur)[login] == "Pending additional validation"
    scripted.answers[login] = BackendError("no")
    provisioned(site)
    assert states(waldur)[login] == "Pending additional validation"
    del scripted.answers[login]
    provisioned(site)
    row = waldur.people.account(login)
    assert row is not None
    assert (row.state.value, row.username, row.service_provider_comment) == ("OK", f"n-{login}", "")


@pytest.mark.parametrize("state", ["Creating", "Error creating", "Pending account linking"])
def test_people_who_are_stuck_are_taken_up_after_the_new_ones(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, state: str
) -> None:
    stuck = logins(waldur)[:2]
    for login in stuck:
        set_state(waldur, login, state)
    provisioned(site_for())
    assert set(states(waldur).values()) == {"OK"}
    assert set(scripted.asked[-2:]) == set(stuck)


@pytest.mark.parametrize("state", ["Requested deletion", "Deleting", "Deleted", "Error deleting"])
def test_people_who_leave_are_left_alone(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, state: str
) -> None:
    login = logins(waldur)[0]
    set_state(waldur, login, state)
    provisioned(site_for())
    assert states(waldur)[login] == state
    assert login not in scripted.asked


def test_restricted_people_get_no_name(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    login = logins(waldur)[0]
    row = waldur.people.account(login)
    assert row is not None
    waldur.site.change("offering_users", row.uuid, is_restricted=True)
    provisioned(site_for())
    assert states(waldur)[login] == "Requested"
    assert login not in scripted.asked


def test_no_user_gets_the_name_of_another(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    one, two, three, *_ = logins(waldur)
    waldur.people.set_account(three, "taken")
    scripted.answers = {one: "taken", two: "same"}
    site = site_for()
    provisioned(site)
    assert accounts(waldur)[one] == ("Error creating", "")
    scripted.answers = {one: "same"}
    provisioned(site)
    assert (accounts(waldur)[one], accounts(waldur)[two]) == (("Error creating", ""), ("OK", "same"))


def test_a_move_that_waldur_refuses_skips_the_person(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    """Another agent was faster: what was listed is not true any more."""
    site = site_for()
    login = logins(waldur)[0]
    users, options = listed(site), facts(site)
    set_state(waldur, login, "Deleted")
    report = provision(site, users, options)
    refused = [outcome for outcome in report.outcomes if not outcome.done]
    assert [type(outcome.action) for outcome in refused] == [BeginUsername]
    assert isinstance(refused[0].error, WaldurError) and refused[0].error.status == 400
    assert states(waldur)[login] == "Deleted"
    assert login not in scripted.asked


def test_profiles_follow_the_names(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted
) -> None:
    site = site_for()
    login = logins(waldur)[0]
    change = UpdateProfile(user=f"n-{login}", changes=(("sn", "x"),))
    scripted.stale = [change, UpdateProfile(user="stranger", changes=(("sn", "x"),))]
    report = provisioned(site)
    assert scripted.applied == [change]
    assert report.outcomes[-1].action == change


def test_the_base_backend_leaves_names_to_others(waldur: SimulatedWaldur, site_for: SiteFactory) -> None:
    site = site_for("base")
    provisioned(site)
    assert set(accounts(waldur).values()) == {("Creating", "")}
    waldur.requests.reset()
    provisioned(site)
    assert posts(waldur) == {}


@pytest.mark.parametrize("name", ["waldur-identity-bridge", "broken"])
def test_a_backend_that_is_not_installed_is_a_warning_with_those_that_are(
    waldur: SimulatedWaldur,
    site_for: SiteFactory,
    scripted: Scripted,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    report = provisioned(site_for(name))
    assert set(states(waldur).values()) == {"Requested"}
    assert (report.error, report.outcomes) == (None, ())
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    words = "installed are: base, broken, ldap, scripted, template" if name != "broken" else "no_such_module"
    assert any(name in text and words in text for text in warnings)


def test_options_against_names_of_ours(
    site_for: SiteFactory, scripted: Scripted, waldur: SimulatedWaldur, caplog: pytest.LogCaptureFixture
) -> None:
    options = waldur.store.offerings[waldur.seed.offering_uuid].plugin_options
    options["username_generation_policy"] = "freeipa"
    provisioned(site_for())
    assert set(states(waldur).values()) == {"Requested"}
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    options["username_generation_policy"] = "service_provider"
    options["service_provider_can_create_offering_user"] = False
    provisioned(site_for())
    assert set(states(waldur).values()) == {"Requested"}
    assert "service_provider_can_create_offering_user" in caplog.text


def test_a_server_without_states_gets_names_and_no_other_call(tmp_path: Path, scripted: Scripted) -> None:
    with SimulatedWaldur(age="2024", scenario=SCENARIO) as old:
        site = site_on(old, tmp_path)
        linked, faulty, *others = logins(old)
        scripted.answers = {linked: AccountLinkingRequired("link"), faulty: BackendError("no")}
        provisioned(site)
        assert {name for _, name in accounts(old).values()} == {"", *(f"n-{login}" for login in others)}
        assert posts(old) == {"PATCH marketplace-offering-users/{uuid}/": len(others)}


def test_what_people_had_to_do_is_never_an_error_in_the_log(
    waldur: SimulatedWaldur, site_for: SiteFactory, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.answers = {logins(waldur)[0]: AccountLinkingRequired("link it")}
    provisioned(site_for())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
