# SPDX-License-Identifier: MIT
"""What each kind of message asks for, and what is no message of Waldur's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.bridge import decode
from agent.bridge.decode import MAX_BYTES, Undecodable
from agent.core.events import Job, JobKind, ObjectType

pytestmark = pytest.mark.events

OFFERING, PROJECT, RESOURCE, OTHER = "a" * 32, "b" * 32, "c" * 32, "d" * 32
ORDERS, EVERYBODY = Job(JobKind.ORDERS, OFFERING), Job(JobKind.MEMBERSHIP, OFFERING)
OF_PROJECT = Job(JobKind.MEMBERSHIP, OFFERING, project_uuid=PROJECT)
OF_RESOURCE = Job(JobKind.MEMBERSHIP, OFFERING, resource_uuid=RESOURCE)
LIMITS = {"policy_uuid": OTHER, "resource_uuid": RESOURCE, "backend_id": "a_one", "settings": {}}


def jobs(kind: str, payload: Any, **options: Any) -> list[Job]:
    body = json.dumps(payload).encode()
    _, found = decode.jobs(
        body, len(body), offering_uuid=OFFERING, object_type=options.get("queue", ObjectType(kind))
    )
    return found


MEANINGS = [
    ("order", {"order_uuid": OTHER}, [ORDERS]),
    ("order", {"order_uuid": OTHER, "order_state": "pending-provider"}, [ORDERS]),
    ("order", {"order_uuid": OTHER, "order_state": "executing"}, [ORDERS]),
    ("order", {"order_uuid": OTHER, "order_state": "a state of tomorrow"}, [ORDERS]),
    *(("order", {"order_uuid": OTHER, "order_state": state}, []) for state in sorted(decode.NOTHING_DUE)),
    ("user_role", {"project_uuid": PROJECT, "user_uuid": OTHER, "granted": False}, [OF_PROJECT]),
    ("user_role", {"project_uuid": PROJECT, "project_name": "only a resync"}, [OF_PROJECT]),
    ("user_role", {"project_uuid": PROJECT, "resource_uuid": RESOURCE}, [OF_RESOURCE]),
    ("resource", {"resource_uuid": RESOURCE, "paused": True}, [OF_RESOURCE]),
    ("resource", {"resource_uuid": "cccccccc-cccc-cccc-cccc-cccccccccccc"}, [OF_RESOURCE]),
    ("offering_user", {"offering_user_uuid": OTHER, "action": "username_set", "state": 5}, [EVERYBODY]),
    ("offering_user", {"offering_user_uuid": OTHER, "action": "delete", "state": "Deleted"}, [EVERYBODY]),
    ("service_account", {"account_uuid": OTHER, "project_uuid": PROJECT}, [OF_PROJECT]),
    ("course_account", {"account_uuid": OTHER, "project_uuid": PROJECT, "action": "delete"}, [OF_PROJECT]),
    (
        "importable_resources",
        {"backend_resource_request_uuid": OTHER},
        [Job(JobKind.IMPORT, OFFERING, request_uuid=OTHER)],
    ),
    (
        "offering_resources_sync",
        {"requested_by_user_uuid": OTHER},
        [ORDERS, EVERYBODY, Job(JobKind.REBUILD, OFFERING)],
    ),
    (
        "resource_periodic_limits",
        LIMITS,
        [
            Job(
                JobKind.PERIODIC_LIMITS,
                OFFERING,
                resource_uuid=RESOURCE,
                document={**LIMITS, "offering_uuid": OFFERING},
            )
        ],
    ),
    (
        "service_provider_project_group",
        {"action": "switch", "service_provider_uuid": OTHER, "project_groups_enabled": True},
        [Job(JobKind.MEMBERSHIP, OFFERING)],
    ),
    (
        "resource_api_key_rotation",
        {"api_key_uuid": OTHER, "action": "rotate"},
        [Job(JobKind.KEY_ROTATION, OFFERING, request_uuid=OTHER)],
    ),
]


@pytest.mark.parametrize(("kind", "payload", "meant"), MEANINGS)
def test_meanings(kind: str, payload: dict[str, Any], meant: list[Job]) -> None:
    named = {**payload, "offering_uuid": OFFERING}
    assert jobs(kind, named) == meant
    enriched = {**named, "object_type": kind, "schema_version": 1}
    again = jobs(kind, enriched, queue=None)
    assert [replace(job, document={}) for job in again] == [replace(job, document={}) for job in meant]


def test_every_type_has_a_meaning() -> None:
    assert set(ObjectType) == {ObjectType(kind) for kind, _, _ in MEANINGS}


REFUSED = [
    ("order", [], "it is not a JSON object"),
    ("order", {}, "it has no order_uuid"),
    ("order", {"order_uuid": 7}, "it has no order_uuid"),
    ("order", {"order_uuid": "x"}, "its order_uuid is no uuid: 'x'"),
    ("order", {"order_uuid": OTHER, "offering_uuid": OTHER}, f"it is about offering {OTHER}, and came for"),
    ("user_role", {"resource_uuid": "x", "project_uuid": PROJECT}, "its resource_uuid is no uuid"),
    ("resource", {"resource_backend_id": "a_one"}, "it has no resource_uuid"),
    ("offering_user", {"user_uuid": OTHER}, "it has no offering_user_uuid"),
    ("service_account", {"account_uuid": OTHER}, "it has no project_uuid"),
    ("resource_periodic_limits", {**LIMITS, "policy_uuid": None}, "it has no policy_uuid"),
    ("resource_api_key_rotation", {"resource_uuid": RESOURCE}, "it has no api_key_uuid"),
]


@pytest.mark.parametrize(("kind", "payload", "words"), REFUSED)
def test_what_is_no_message(kind: str, payload: Any, words: str) -> None:
    with pytest.raises(Undecodable) as refusal:
        jobs(kind, payload)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(("named", "words"), [("weather", "'weather'"), (None, "'None'"), ([1], r"'\[1\]'")])
def test_a_type_that_is_not_known(named: Any, words: str) -> None:
    with pytest.raises(Undecodable, match=f"its object_type is {words}, which is not known"):
        jobs("order", {"object_type": named, "order_uuid": OTHER}, queue=None)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_bytes_that_are_no_json(body: bytes) -> None:
    with pytest.raises(Undecodable, match="it "):
        decode.jobs(body, len(body), offering_uuid=OFFERING, object_type=ObjectType.ORDER)


def test_a_message_that_is_too_large_is_not_even_read() -> None:
    with pytest.raises(Undecodable, match=f"it has {MAX_BYTES + 1} bytes"):
        decode.jobs(b"{", MAX_BYTES + 1, offering_uuid=OFFERING, object_type=ObjectType.ORDER)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(
        ["order_uuid", "project_uuid", "resource_uuid", "policy_uuid", "offering_uuid", "object_type"]
    ) | st.text(), inner),
), st.sampled_from([*ObjectType, None]))  # fmt: skip
def test_anything_is_understood_or_refused(payload: Any, queue: ObjectType | None) -> None:
    body = json.dumps(payload).encode()
    try:
        _, found = decode.jobs(body, len(body), offering_uuid=OFFERING, object_type=queue)
    except Undecodable:
        return
    assert all(job.offering_uuid == OFFERING for job in found)
