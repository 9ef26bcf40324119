# SPDX-License-Identifier: MIT
"""The rows about the agent itself: identities, services, subscriptions, statuses, logs and policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from simulator.world.records import JsonObject


@dataclass(kw_only=True)
class AgentIdentity:
    uuid: str
    offering_uuid: str
    name: str
    created: datetime
    modified: datetime
    last_restarted: str
    version: str | None = None
    dependencies: object = field(default_factory=list)
    config_file_path: str | None = None
    config_file_content: str | None = None
    created_by_uuid: str | None = None


@dataclass(kw_only=True)
class AgentService:
    uuid: str
    identity_uuid: str
    name: str
    mode: str | None
    created: datetime
    modified: datetime
    state: str = "Active"
    statistics: object = field(default_factory=dict)


@dataclass(kw_only=True)
class AgentProcessor:
    uuid: str
    service_uuid: str
    name: str
    backend_type: str
    backend_version: str | None
    created: datetime
    modified: datetime
    last_run: datetime


@dataclass(kw_only=True)
class AgentLogLine:
    uuid: str
    identity_uuid: str
    created: datetime
    timestamp: object
    level: str
    message: str
    module: str


@dataclass(kw_only=True)
class EventSubscription:
    uuid: str
    user_uuid: str
    description: str
    observable_objects: list[JsonObject]
    created: datetime
    modified: datetime
    source_ip: str


@dataclass(kw_only=True)
class EventQueue:
    uuid: str
    subscription_uuid: str
    offering_uuid: str
    object_type: str
    created: datetime


@dataclass(kw_only=True)
class EventConsumer:
    """The single queue of an agent identity (8.1)."""

    uuid: str
    identity_uuid: str
    user_uuid: str
    object_types: list[str]
    created: datetime


@dataclass(kw_only=True)
class IntegrationStatus:
    uuid: str
    offering_uuid: str
    agent_type: str
    last_request_timestamp: datetime
    service_name: str = ""


@dataclass(kw_only=True)
class CommandResult:
    policy_uuid: str
    resource_uuid: str
    success: bool
    error_message: str
    mode: str
    commands_executed: list[str]
    received: datetime


@dataclass(kw_only=True)
class PeriodicPolicy:
    """A SLURM periodic usage policy; `settings` overrides the defaults of the same names."""

    uuid: str
    offering_uuid: str
    created: datetime
    settings: JsonObject = field(default_factory=dict)


@dataclass(kw_only=True)
class BackendResourceRequest:
    """Somebody wants to know what could be imported: Sent, Processing, Done or Erred."""

    uuid: str
    offering_uuid: str
    created: datetime
    modified: datetime
    started: datetime | None = None
    finished: datetime | None = None
    state: str = "Sent"
    error_message: str = ""
    error_traceback: str = ""


@dataclass(kw_only=True)
class BackendResource:
    """An account that the agent found on the cluster and offers for import."""

    uuid: str
    name: str
    project_uuid: str
    offering_uuid: str
    backend_id: str
    backend_metadata: JsonObject
    created: datetime
    modified: datetime


@dataclass(kw_only=True)
class ApiKey:
    """A key of a resource (8.1); `Updating` while the agent is to make another one, or as `pending_action` says."""

    uuid: str
    resource_uuid: str
    client_id: str
    state: str = "OK"
    error_message: str = ""
    pending_action: str = ""
    api_key: str = field(default="", repr=False)
    usages: dict[str, dict[str, str]] = field(default_factory=dict)
