# SPDX-License-Identifier: MIT
"""From the bytes of a message to the jobs it asks for, pure. What cannot be understood raises Undecodable.

Only identifiers are taken: what a message says of states, names or roles may be old. The exceptions are periodic
limits and key rotations, which Waldur cannot be asked about; they go on whole, to be judged where they are applied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from agent.core.account_names import uuid_hex
from agent.core.errors import SiteAgentError
from agent.core.events import Job, JobKind, ObjectType

# The largest real ones, with all attributes of a user, have a few KiB.
MAX_BYTES = 64 * 1024
# An order in one of these needs nothing of us, or not yet: a later message will tell.
SETTLED = frozenset(
    {"done", "erred", "canceled", "rejected", "pending-consumer", "pending-project", "pending-start-date"}
)
# What a message names, when it names something: the first that is there says how far the pass goes.
Document = Mapping[str, Any]


class Undecodable(SiteAgentError):
    """A message that is not what Waldur sends."""


def jobs(
    body: bytes, size: int, *, offering_uuid: str, object_type: ObjectType | None
) -> tuple[ObjectType, list[Job]]:
    """What a message from a queue of this offering (and type, if the queue has one) asks for; it may be nothing."""
    if size > MAX_BYTES:
        raise Undecodable(f"it has {size} bytes; no message of Waldur's has more than {MAX_BYTES}")
    document = _document(body)
    _check_offering(document, offering_uuid)
    kind = _kind(document, object_type)
    return kind, JOBS[kind](document, offering_uuid)


def _document(body: bytes) -> Document:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"it is not JSON: {error}"[:200]) from error
    if not isinstance(document, Mapping):
        raise Undecodable("it is not a JSON object")
    return document


def _check_offering(document: Document, offering_uuid: str) -> None:
    """Waldur adds the offering to every message; servers of early 2025 did not."""
    if document.get("offering_uuid") is None:
        return
    named = _uuid(document, "offering_uuid")
    if named != offering_uuid:
        raise Undecodable(f"it is about offering {named}, and came for {offering_uuid}")


def _kind(document: Document, object_type: ObjectType | None) -> ObjectType:
    if object_type is not None:
        return object_type
    told = document.get("object_type")
    try:
        return ObjectType(str(told))
    except ValueError as error:
        raise Undecodable(f"its object_type is {str(told)[:40]!r}, which is not known") from error


def _order(document: Document, offering_uuid: str) -> list[Job]:
    """All orders that wait are one pass: a burst of messages becomes a batch."""
    _uuid(document, "order_uuid")
    if document.get("order_state") in SETTLED:
        return []
    return [Job(JobKind.ORDERS, offering_uuid)]


def _user_role(document: Document, offering_uuid: str) -> list[Job]:
    """A role, or a whole project or resource to be looked at again. Every role of a project is one job."""
    if document.get("resource_uuid") is not None:
        return _resource(document, offering_uuid)
    return _project(document, offering_uuid)


def _project(document: Document, offering_uuid: str) -> list[Job]:
    return [Job(JobKind.MEMBERSHIP, offering_uuid, project_uuid=_uuid(document, "project_uuid"))]


def _resource(document: Document, offering_uuid: str) -> list[Job]:
    return [Job(JobKind.MEMBERSHIP, offering_uuid, resource_uuid=_uuid(document, "resource_uuid"))]


def _offering_user(document: Document, offering_uuid: str) -> list[Job]:
    """A person may be in any project of the offering: one pass over all of them, whatever the number of persons."""
    _uuid(document, "offering_user_uuid")
    return [Job(JobKind.MEMBERSHIP, offering_uuid)]


def _importable(document: Document, offering_uuid: str) -> list[Job]:
    return [Job(JobKind.IMPORT, offering_uuid, request_uuid=_uuid(document, "backend_resource_request_uuid"))]


def everything(_: Document, offering_uuid: str) -> list[Job]:
    """A full pass, which is two: they do not depend on each other."""
    return [Job(JobKind.ORDERS, offering_uuid), Job(JobKind.MEMBERSHIP, offering_uuid)]


def _periodic_limits(document: Document, offering_uuid: str) -> list[Job]:
    """What is wrong in the settings is reported to the policy; without policy and resource there is nobody to tell."""
    _uuid(document, "policy_uuid")
    resource_uuid = _uuid(document, "resource_uuid")
    return [Job(JobKind.PERIODIC_LIMITS, offering_uuid, resource_uuid=resource_uuid, document=dict(document))]


def _key_rotation(document: Document, offering_uuid: str) -> list[Job]:
    return [Job(JobKind.KEY_ROTATION, offering_uuid, request_uuid=_uuid(document, "api_key_uuid"))]


def _uuid(document: Document, key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise Undecodable(f"it has no {key}")
    try:
        return uuid_hex(value)
    except ValueError as error:
        raise Undecodable(f"its {key} is no uuid: {value[:40]!r}") from error


JOBS: Mapping[ObjectType, Callable[[Document, str], list[Job]]] = {
    ObjectType.ORDER: _order,
    ObjectType.USER_ROLE: _user_role,
    ObjectType.RESOURCE: _resource,
    ObjectType.OFFERING_USER: _offering_user,
    ObjectType.SERVICE_ACCOUNT: _project,
    ObjectType.COURSE_ACCOUNT: _project,
    ObjectType.IMPORTABLE_RESOURCES: _importable,
    ObjectType.OFFERING_RESOURCES_SYNC: everything,
    ObjectType.PERIODIC_LIMITS: _periodic_limits,
    ObjectType.KEY_ROTATION: _key_rotation,
}
