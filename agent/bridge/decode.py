# SPDX-License-Identifier: MIT
"""From the bytes of a message to the jobs it asks for; pure. A message that cannot be understood raises Undecodable.

Only identifiers are taken: what a message says of states, names or roles may be old. The exceptions are periodic
limits and key rotations, which Waldur cannot be asked about; they go on whole, to be judged where they are applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from agent.core.account_names import uuid_hex
from agent.core.bounded_json import TooMuchJson, read_json
from agent.core.errors import SiteAgentError
from agent.core.events import Job, JobKind, ObjectType

# The largest real ones, with all attributes of a user, have a few KiB.
MAX_BYTES = 64 * 1024
# An order in one of these needs nothing of us, or not yet: a later message comes when it does.
NOTHING_DUE = frozenset(
    {"done", "erred", "canceled", "rejected", "pending-consumer", "pending-project", "pending-start-date"}
)


class Undecodable(SiteAgentError):
    """A message that is not what Waldur sends."""


def jobs(
    body: bytes, size: int, *, offering_uuid: str, object_type: ObjectType | None
) -> tuple[ObjectType, list[Job]]:
    """Return the type of a message and the jobs that it asks for, perhaps none.

    It came from a queue of this offering; `object_type` is the queue's, None where each message names its own.
    Raises Undecodable.
    """
    if size > MAX_BYTES:
        raise Undecodable(f"it has {size} bytes; no message of Waldur's has more than {MAX_BYTES}")
    try:
        document = read_json(body)
    except TooMuchJson as error:
        raise Undecodable(str(error)) from error
    except ValueError as error:
        raise Undecodable(f"it is not JSON: {error}"[:200]) from error
    if not isinstance(document, Mapping):
        raise Undecodable("it is not a JSON object")
    # Servers of early 2025 did not name the offering.
    if document.get("offering_uuid") is not None:
        named = _uuid(document, "offering_uuid")
        if named != offering_uuid:
            raise Undecodable(f"it is about offering {named}, and came for {offering_uuid}")
    if object_type is None:
        name = str(document.get("object_type"))
        try:
            object_type = ObjectType(name)
        except ValueError as error:
            raise Undecodable(f"its object_type is {name[:40]!r}, which is not known") from error
    return object_type, _jobs_for(object_type, document, offering_uuid)


def full_pass(offering_uuid: str) -> list[Job]:
    """Return the jobs of a full pass: orders and members, which do not depend on each other."""
    return [Job(JobKind.ORDERS, offering_uuid), Job(JobKind.MEMBERSHIP, offering_uuid)]


def _jobs_for(object_type: ObjectType, document: Mapping[str, Any], offering_uuid: str) -> list[Job]:
    match object_type:
        case ObjectType.ORDER:
            # All orders that wait are one pass: a burst of messages becomes a batch.
            _uuid(document, "order_uuid")
            is_nothing_due = str(document.get("order_state")) in NOTHING_DUE
            return [] if is_nothing_due else [Job(JobKind.ORDERS, offering_uuid)]
        case ObjectType.USER_ROLE if document.get("resource_uuid") is None:
            # Every role of a project is one job.
            return [Job(JobKind.MEMBERSHIP, offering_uuid, project_uuid=_uuid(document, "project_uuid"))]
        case ObjectType.SERVICE_ACCOUNT | ObjectType.COURSE_ACCOUNT:
            return [Job(JobKind.MEMBERSHIP, offering_uuid, project_uuid=_uuid(document, "project_uuid"))]
        case ObjectType.USER_ROLE | ObjectType.RESOURCE:
            return [Job(JobKind.MEMBERSHIP, offering_uuid, resource_uuid=_uuid(document, "resource_uuid"))]
        case ObjectType.OFFERING_USER:
            # A person may be in any project of the offering: one pass over all, whatever the number of persons.
            _uuid(document, "offering_user_uuid")
            return [Job(JobKind.MEMBERSHIP, offering_uuid)]
        case ObjectType.PROJECT_GROUP:
            # Groups are made as a whole: which of them it is about does not matter, and a switch is about none.
            return [Job(JobKind.MEMBERSHIP, offering_uuid)]
        case ObjectType.OFFERING_RESOURCES_SYNC:
            # An operator has forced it in Waldur: accounts that the cluster has lost are made again, too.
            return [*full_pass(offering_uuid), Job(JobKind.REBUILD, offering_uuid)]
        case ObjectType.IMPORTABLE_RESOURCES:
            request_uuid = _uuid(document, "backend_resource_request_uuid")
            return [Job(JobKind.IMPORT, offering_uuid, request_uuid=request_uuid)]
        case ObjectType.PERIODIC_LIMITS:
            # Wrong settings are reported to the policy; without policy and resource they cannot be reported.
            _uuid(document, "policy_uuid")
            resource_uuid = _uuid(document, "resource_uuid")
            return [
                Job(
                    JobKind.PERIODIC_LIMITS,
                    offering_uuid,
                    resource_uuid=resource_uuid,
                    document=dict(document),
                )
            ]
        case ObjectType.KEY_ROTATION:
            return [Job(JobKind.KEY_ROTATION, offering_uuid, request_uuid=_uuid(document, "api_key_uuid"))]
        case _:
            assert_never(object_type)


def _uuid(document: Mapping[str, Any], key: str) -> str:
    """Return the uuid under this key as 32 hex digits. Raises Undecodable."""
    value = document.get(key)
    if not isinstance(value, str):
        raise Undecodable(f"it has no {key}")
    try:
        return uuid_hex(value)
    except ValueError as error:
        raise Undecodable(f"its {key} is no uuid: {value[:40]!r}") from error
