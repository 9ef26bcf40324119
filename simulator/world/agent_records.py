# SPDX-License-Identifier: MIT
"""The rows about the agent itself: identities, services, subscriptions, statuses, logs and policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from simulator.world.records import Created, JsonObject, Modified, Record


@dataclass(kw_only=True)
class AgentIdentity(Modified):
    offering_uuid: str
    name: str
    last_restarted: str
    version: str | None = None
    dependencies: object = field(default_factory=list)
    config_file_path: str | None = None
    config_file_content: str | None = None
    created_by_uuid: str | None = None


@dataclass(kw_only=True)
class AgentService(Modified):
    identity_uuid: str
    name: str
    mode: str | None
    state: str = "Active"
    statistics: object = field(default_factory=dict)


@dataclass(kw_only=True)
class AgentProcessor(Modified):
    service_uuid: str
    name: str
    backend_type: str
    backend_version: str | None
    last_run: datetime


@dataclass(kw_only=True)
class AgentLogLine(Created):
    identity_uuid: str
    timestamp: object
    level: str
    message: str
    module: str


@dataclass(kw_only=True)
class EventSubscription(Modified):
    user_uuid: str
    description: str
    observable_objects: list[JsonObject]
    source_ip: str


@dataclass(kw_only=True)
class EventQueue(Created):
    subscription_uuid: str
    offering_uuid: str
    object_type: str


@dataclass(kw_only=True)
class EventConsumer(Created):
    """The single queue of an agent identity (8.1)."""

    identity_uuid: str
    user_uuid: str
    object_types: list[str]


@dataclass(kw_only=True)
class IntegrationStatus(Record):
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
class PeriodicPolicy(Created):
    """A SLURM periodic usage policy."""

    offering_uuid: str
    # They override the defaults of the same names.
    settings: JsonObject = field(default_factory=dict)


@dataclass(kw_only=True)
class BackendResourceRequest(Modified):
    """A request for what could be imported: Sent, Processing, Done or Erred."""

    offering_uuid: str
    started: datetime | None = None
    finished: datetime | None = None
    state: str = "Sent"
    error_message: str = ""
    error_traceback: str = ""


@dataclass(kw_only=True)
class BackendResource(Modified):
    """An account that the agent found on the cluster and offers for import."""

    name: str
    project_uuid: str
    offering_uuid: str
    backend_id: str
    backend_metadata: JsonObject


@dataclass(kw_only=True)
class ApiKey(Record):
    """A key of a resource (8.1)."""

    resource_uuid: str
    client_id: str
    # `Updating` while the agent is to make another one, or as the pending action says.
    state: str = "OK"
    error_message: str = ""
    pending_action: str = ""
    api_key: str = field(default="", repr=False)
    usages: dict[str, dict[str, str]] = field(default_factory=dict)
