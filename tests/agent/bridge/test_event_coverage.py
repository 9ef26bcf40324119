# SPDX-License-Identifier: MIT
"""Which types an offering needs, which modes they cover, and which polls are skipped in that time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode, Offering
from agent.core.events import ObjectType
from agent.run.service import event_coverage, services
from agent.run.service.event_coverage import START_GRACE_S, Polls
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur

pytestmark = pytest.mark.events

ORDERS = {"order", "resource_api_key_rotation"}
MEMBERS = {
    *(
        "user_role",
        "resource",
        "service_account",
        "course_account",
        "offering_user",
        "offering_resources_sync",
    )
}
DIRECTORY = {"uri": "ldaps://ldap", "bind_dn": "cn=a", "bind_password": "b", "base_dn": "dc=c"}
BOTH = {"stomp_enabled": True, "membership_sync_backend": "slurm"}


def offering(folder: Path, backend: dict[str, Any] | None = None, **keys: Any) -> Offering:
    return settings_of(configuration(SimulatedWaldur(), folder, backend=backend, **keys)).offerings[0]


@pytest.mark.parametrize(
    ("keys", "backend", "types"),
    [
        ({}, {}, set()),
        ({"stomp_enabled": True}, {}, ORDERS),
        ({"mqtt_enabled": True}, {}, ORDERS),
        (BOTH, {}, ORDERS | MEMBERS),
        ({**BOTH, "stomp_membership_sync_enabled": False}, {}, ORDERS),
        ({**BOTH, "order_processing_backend": None}, {}, MEMBERS),
        ({**BOTH, "resource_import_enabled": True}, {}, ORDERS | MEMBERS | {"importable_resources"}),
        (
            {"stomp_enabled": True},
            {"periodic_limits": {"enabled": True}},
            ORDERS | {"resource_periodic_limits"},
        ),
        (
            {**BOTH, "order_processing_backend": None},
            {"periodic_limits": {"enabled": True}},
            MEMBERS,
        ),
        ({"resource_import_enabled": True}, {}, set()),
        (BOTH, {"ldap": DIRECTORY}, ORDERS | MEMBERS),
        (
            BOTH,
            {"ldap": {**DIRECTORY, "project_groups": {"enabled": True}}},
            ORDERS | MEMBERS | {"service_provider_project_group"},
        ),
    ],
)
def test_types(tmp_path: Path, keys: dict[str, Any], backend: dict[str, Any], types: set[str]) -> None:
    assert set(services.wanted_types(offering(tmp_path, backend, **keys))) == types


def test_a_server_that_does_not_send_everything_covers_what_it_sends(tmp_path: Path) -> None:
    made = offering(tmp_path, **BOTH)
    early = {ObjectType.ORDER, ObjectType.USER_ROLE, ObjectType.RESOURCE}
    assert event_coverage.covered(made, early) == {Mode.ORDER_PROCESS}
    assert event_coverage.covered(made, early | {ObjectType.OFFERING_USER}) == {
        Mode.ORDER_PROCESS,
        Mode.MEMBERSHIP_SYNC,
    }
    assert event_coverage.covered(made, {ObjectType.OFFERING_USER}) == frozenset()
    by_polls = offering(tmp_path, **{**BOTH, "stomp_membership_sync_enabled": False})
    assert event_coverage.covered(by_polls, set(ObjectType)) == {Mode.ORDER_PROCESS}


def test_polls_stop_while_a_bridge_listens() -> None:
    polls = Polls(full_period_s=3600, started_s=0)
    assert polls.is_due("p", True, 1)
    polls.note_started("p", 1)
    assert not polls.is_due("p", True, 300)
    assert polls.is_due("p", False, 300)
    assert polls.is_due("p", True, 3600)
    assert polls.is_due("another", True, 300)


def test_a_change_is_reported_once() -> None:
    polls = Polls(full_period_s=3600, started_s=0)
    assert polls.news("p", False, START_GRACE_S - 1) == ""
    reported = [polls.news("p", is_covered, 1000) for is_covered in (False, False, True, True, False)]
    assert [bool(sentence) for sentence in reported] == [True, False, True, False, True]
