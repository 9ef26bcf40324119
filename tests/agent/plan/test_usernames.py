# SPDX-License-Identifier: MIT
"""The states of an offering user: every state meets every answer, and each call is one that Waldur takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.actions import Action
from agent.core.directory_actions import (
    AskAccountLinking,
    AskValidation,
    AssignUsername,
    BeginUsername,
    CompleteValidation,
    FailUsername,
)
from agent.core.errors import (
    AccountLinkingRequired,
    AdditionalValidationRequired,
    BackendError,
    BackendUnavailable,
    SiteAgentError,
)
from agent.core.model import OfferingUser
from agent.plan.usernames import UserState, closing, dry_run_actions, due, obstacle, opening
from simulator.rules.offering_user_rules import TRANSITIONS
from simulator.world.records import OfferingUserState

UUID = "1" * 32
NAME = AssignUsername(offering_user=UUID, username="jsmith")
BEGIN = BeginUsername(offering_user=UUID)
LINK = AskAccountLinking(offering_user=UUID, comment="link it", comment_url="https://x/")
VALIDATE = AskValidation(offering_user=UUID, comment="sign it", comment_url="https://y/")
FAIL = FailUsername(offering_user=UUID, message="no")
COMPLETE = CompleteValidation(offering_user=UUID)

LINKING = AccountLinkingRequired("link it", comment_url="https://x/")
VALIDATION = AdditionalValidationRequired("sign it", comment_url="https://y/")
ANSWERS: dict[str, str | SiteAgentError] = {
    "name": "jsmith",
    "nothing": "",
    "linking": LINKING,
    "validation": VALIDATION,
    "fault": BackendError("no"),
    "outage": BackendUnavailable("away"),
    "other": SiteAgentError("what is this"),
}

# state -> answer -> calls; what is not there means no call beyond the opening one
TABLE: dict[str, dict[str, tuple[Action, ...]]] = {
    "": {"name": (NAME,)},
    "OK": {"name": (NAME,)},
    "Requested": {"name": (NAME,), "linking": (LINK,), "validation": (VALIDATE,), "fault": (FAIL,)},
    "Creating": {"name": (NAME,), "linking": (LINK,), "validation": (VALIDATE,), "fault": (FAIL,)},
    "Error creating": {"name": (NAME,), "linking": (LINK,), "validation": (VALIDATE,), "fault": (FAIL,)},
    "Pending account linking": {"name": (COMPLETE, NAME), "validation": (VALIDATE,)},
    "Pending additional validation": {"name": (COMPLETE, NAME), "linking": (LINK,)},
}
BEGUN = ("Requested", "Error creating")


def user(state: str, username: str = "", number: int = 1, **changes: object) -> OfferingUser:
    made = OfferingUser(uuid=f"{number}" * 32, user_uuid=f"{number + 4}" * 32, username=username, state=state)
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("state", TABLE)
def test_what_follows(state: str, answer: str) -> None:
    opened = (BEGIN,) if state in BEGUN else ()
    assert dry_run_actions(user(state), ANSWERS[answer]) == (*opened, *TABLE[state].get(answer, ()))


def test_the_table_has_every_state_that_we_act_on() -> None:
    assert set(TABLE) == set(UserState)
    known = {state.value for state in OfferingUserState}
    assert set(TABLE) - {""} < known


STEPS = {
    BeginUsername: "begin_creating",
    CompleteValidation: "set_validation_complete",
    AskAccountLinking: "set_pending_account_linking",
    AskValidation: "set_pending_additional_validation",
    FailUsername: "set_error_creating",
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("state", [state for state in TABLE if state])
def test_waldur_takes_every_call_in_the_state_it_is_sent_in(state: str, answer: str) -> None:
    """The moves are those of the simulated Waldur, which are the server's."""
    now = OfferingUserState(state)
    for action in dry_run_actions(user(state), ANSWERS[answer]):
        if isinstance(action, AssignUsername):
            now = OfferingUserState.OK
            continue
        target, sources = TRANSITIONS[STEPS[type(action)]]
        assert now in sources
        now = target


def test_new_users_come_first_and_the_others_keep_their_order() -> None:
    states = ["Creating", "Requested", "Error creating", "Pending account linking", "Requested", "OK", ""]
    users = [user(state, number=number) for number, state in enumerate(states, 1)]
    assert [u.uuid[0] for u in due(users)] == ["2", "5", "1", "3", "4", "6", "7"]


NOT_DUE = {
    "has a name": user("OK", "jsmith"),
    "has a name in any state": user("Creating", "jsmith"),
    "is restricted": user("Requested", is_restricted=True),
    "leaves": user("Requested deletion"),
    "is being deleted": user("Deleting"),
    "is deleted": user("Deleted"),
    "could not be deleted": user("Error deleting"),
    "is in a state that newer servers have": user("Frozen"),
    "has no record of its own": user("Requested", uuid=""),
}


@pytest.mark.parametrize("why", NOT_DUE)
def test_who_is_not_taken_up(why: str) -> None:
    assert due([NOT_DUE[why]]) == []


def test_a_user_who_was_begun_is_not_begun_again() -> None:
    assert [state for state in TABLE if opening(user(state))] == ["Requested", "Error creating"]
    assert closing(user("Creating"), "jsmith") == (NAME,)


MAY = {"username_generation_policy": "service_provider", "service_provider_can_create_offering_user": True}


def test_options_that_allow_names() -> None:
    assert obstacle(MAY) is None


@pytest.mark.parametrize("policy", ["waldur_username", "freeipa", "anonymized", "", None])
def test_waldur_may_make_the_names_itself(policy: str | None) -> None:
    found = obstacle({**MAY, "username_generation_policy": policy})
    assert found is not None
    assert not found.is_fault


@pytest.mark.parametrize("flag", [False, None, "", "true"])
def test_a_provider_who_may_not_make_users_is_logged(flag: object) -> None:
    found = obstacle({**MAY, "service_provider_can_create_offering_user": flag})
    assert found is not None
    assert found.is_fault
    assert "service_provider_can_create_offering_user" in found.reason
