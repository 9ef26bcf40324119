# SPDX-License-Identifier: MIT
"""What Waldur reports by events, and what is done about it: jobs that carry identifiers, since messages are hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agent.core.errors import SiteAgentError


class ObjectType(StrEnum):
    """Kinds of messages, as Waldur names them in queues, topics and payloads."""

    ORDER = "order"
    USER_ROLE = "user_role"
    RESOURCE = "resource"
    OFFERING_USER = "offering_user"
    SERVICE_ACCOUNT = "service_account"
    COURSE_ACCOUNT = "course_account"
    IMPORTABLE_RESOURCES = "importable_resources"
    OFFERING_RESOURCES_SYNC = "offering_resources_sync"
    PERIODIC_LIMITS = "resource_periodic_limits"
    KEY_ROTATION = "resource_api_key_rotation"
    PROJECT_GROUP = "service_provider_project_group"


class JobKind(StrEnum):
    ORDERS = "orders"
    MEMBERSHIP = "membership"
    REBUILD = "rebuild"
    IMPORT = "import"
    PERIODIC_LIMITS = "periodic_limits"
    KEY_ROTATION = "key_rotation"


@dataclass(frozen=True, slots=True)
class Job:
    """One task to be queued; without a resource and a project it is about the whole offering."""

    kind: JobKind
    offering_uuid: str
    resource_uuid: str = ""
    project_uuid: str = ""
    request_uuid: str = ""
    # The message itself, for the two kinds that Waldur cannot be asked about again.
    document: Mapping[str, Any] = field(default_factory=dict, hash=False)


class QueueUnavailable(SiteAgentError):
    """The queue of tasks takes nothing now: it is away, or full. The job was not queued."""

    retryable = True
