# SPDX-License-Identifier: MIT
"""The rows of the simulated server: people, projects, offerings, resources, orders and usage.

Plain mutable records keyed by 32-hex uuids; the rules that change them live in the *_rules modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

JsonObject = dict[str, Any]


class OrderState(Enum):
    PENDING_CONSUMER = "pending-consumer"
    PENDING_PROVIDER = "pending-provider"
    PENDING_PROJECT = "pending-project"
    PENDING_START_DATE = "pending-start-date"
    EXECUTING = "executing"
    DONE = "done"
    ERRED = "erred"
    CANCELED = "canceled"
    REJECTED = "rejected"

    @property
    def is_terminal(self) -> bool:
        return self in (OrderState.DONE, OrderState.ERRED, OrderState.CANCELED, OrderState.REJECTED)


class OrderType(Enum):
    CREATE = "Create"
    UPDATE = "Update"
    TERMINATE = "Terminate"
    RESTORE = "Restore"


class ResourceState(Enum):
    CREATING = "Creating"
    OK = "OK"
    ERRED = "Erred"
    UPDATING = "Updating"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"


class OfferingUserState(Enum):
    """Display strings in the order of the server's integers, which start at 1."""

    REQUESTED = "Requested"
    CREATING = "Creating"
    PENDING_ACCOUNT_LINKING = "Pending account linking"
    PENDING_ADDITIONAL_VALIDATION = "Pending additional validation"
    OK = "OK"
    REQUESTED_DELETION = "Requested deletion"
    DELETING = "Deleting"
    DELETED = "Deleted"
    ERROR_CREATING = "Error creating"
    ERROR_DELETING = "Error deleting"

    @property
    def number(self) -> int:
        return list(OfferingUserState).index(self) + 1


@dataclass(kw_only=True)
class Record:
    """What every row has."""

    uuid: str


@dataclass(kw_only=True)
class Created(Record):
    created: datetime


@dataclass(kw_only=True)
class Modified(Created):
    modified: datetime


@dataclass(kw_only=True)
class Customer(Created):
    name: str
    slug: str
    abbreviation: str = ""


@dataclass(kw_only=True)
class Project(Created):
    name: str
    slug: str
    customer_uuid: str
    description: str = ""
    start_date: date | None = None
    end_date: date | None = None
    backend_id: str = ""
    is_industry: bool = False
    oecd_fos_2007_code: str | None = None


@dataclass(kw_only=True)
class User(Created):
    username: str
    first_name: str
    last_name: str
    email: str
    slug: str
    is_staff: bool = False
    is_support: bool = False
    is_active: bool = True
    token_lifetime_s: int | None = None
    # Profile attributes that an offering may expose, keyed by field name without the user_ prefix.
    attributes: JsonObject = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


@dataclass(kw_only=True)
class Token:
    key: str
    user_uuid: str
    scheme: str = "Token"
    expires_at: datetime | None = None


@dataclass(kw_only=True)
class Grant(Created):
    """A role of a user in a customer, a project or an offering."""

    user_uuid: str
    role: str
    scope_type: str
    scope_uuid: str
    expiration_time: datetime | None = None
    created_by_uuid: str | None = None


@dataclass(kw_only=True)
class Role(Record):
    """What a role may do, wherever it is given."""

    name: str
    permissions: frozenset[str]


@dataclass(kw_only=True)
class SshKey(Record):
    name: str
    public_key: str
    user_uuid: str


@dataclass(kw_only=True)
class Component(Record):
    type: str
    name: str
    billing_type: str
    measured_unit: str = ""
    unit_factor: int = 1
    limit_period: str | None = None
    limit_amount: int | None = None
    min_value: int | None = None
    max_value: int | None = None
    max_available_limit: int | None = None
    default_limit: int | None = None
    is_boolean: bool = False
    is_prepaid: bool = False
    min_prepaid_duration: int | None = None
    max_prepaid_duration: int | None = None
    is_builtin: bool = False
    article_code: str = ""
    description: str = ""


@dataclass(kw_only=True)
class Plan(Record):
    name: str
    prices: dict[str, float]
    quotas: dict[str, int]
    unit: str = "month"
    description: str = ""


@dataclass(kw_only=True)
class Offering(Created):
    name: str
    slug: str
    customer_uuid: str
    provider_uuid: str
    category_uuid: str
    type: str = "Marketplace.Slurm"
    state: str = "Active"
    category_title: str = "HPC"
    backend_id: str = ""
    components: list[Component] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    plugin_options: JsonObject = field(default_factory=dict)
    secret_options: JsonObject = field(default_factory=dict)
    backend_metadata: JsonObject = field(default_factory=dict)
    backend_id_rules: JsonObject = field(default_factory=dict)
    partitions: list[str] = field(default_factory=list)
    qos: list[str] = field(default_factory=list)
    exposed_fields: list[str] = field(default_factory=lambda: ["username", "full_name", "email"])
    enforces_consent: bool = False
    service_settings_uuid: str = ""

    def component(self, component_type: str) -> Component | None:
        return next((c for c in self.components if c.type == component_type), None)

    def plan(self, uuid: str | None) -> Plan | None:
        return next((p for p in self.plans if p.uuid == uuid), None)


@dataclass(kw_only=True)
class Allocation(Created):
    """What stands behind a resource in 2024 only; its integer states are those of the old SLURM plugin."""

    state: int
    backend_id: str = ""
    usernames: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Resource(Modified):
    name: str
    slug: str
    offering_uuid: str
    project_uuid: str
    plan_uuid: str | None
    limits: JsonObject = field(default_factory=dict)
    attributes: JsonObject = field(default_factory=dict)
    state: ResourceState = ResourceState.CREATING
    backend_id: str = ""
    effective_id: str = ""
    description: str = ""
    backend_metadata: JsonObject = field(default_factory=dict)
    options: JsonObject | None = None
    report: list[JsonObject] | None = None
    endpoints: list[JsonObject] = field(default_factory=list)
    downscaled: bool = False
    paused: bool = False
    restrict_member_access: bool = False
    end_date: date | None = None
    # What a server of 8.1.4 sends; none of it, where none is set.
    spending_limits: JsonObject = field(default_factory=dict)
    error_message: str = ""
    error_traceback: str = ""
    last_sync: datetime | None = None
    allocation: Allocation | None = None
    # 2024 keeps what the last usage report said; later servers compute it from the usage rows.
    reported_usages: JsonObject = field(default_factory=dict)
    has_lost_backend_id: bool = False


@dataclass(kw_only=True)
class Order(Modified):
    slug: str
    type: OrderType
    state: OrderState
    resource_uuid: str
    offering_uuid: str
    project_uuid: str
    plan_uuid: str | None
    created_by_uuid: str
    limits: JsonObject = field(default_factory=dict)
    attributes: JsonObject = field(default_factory=dict)
    old_plan_uuid: str | None = None
    backend_id: str = ""
    start_date: date | None = None
    cost: Decimal | None = None
    error_message: str = ""
    error_traceback: str = ""
    completed_at: datetime | None = None
    request_comment: str | None = None
    consumer_reviewed_by_uuid: str | None = None
    consumer_reviewed_at: datetime | None = None
    provider_reviewed_by_uuid: str | None = None
    provider_reviewed_at: datetime | None = None
    provider_rejection_comment: str = ""
    termination_comment: str | None = None


@dataclass(kw_only=True)
class OfferingUser(Modified):
    user_uuid: str
    offering_uuid: str
    username: str = ""
    state: OfferingUserState = OfferingUserState.REQUESTED
    is_restricted: bool = False
    has_consent: bool = True
    runtime_state: str = "Active"
    uidnumber: int | None = None
    primarygroup: int | None = None
    home_directory: str = ""
    login_shell: str = ""
    service_provider_comment: str = ""
    service_provider_comment_url: str = ""


@dataclass(kw_only=True)
class ProjectGroup(Modified):
    """A group with a number that a provider has for a project (8.1.3); it stays when the project uses it no more."""

    provider_uuid: str
    project_uuid: str
    name: str
    gid: int | None = None


@dataclass(kw_only=True)
class ComponentUsage(Created):
    resource_uuid: str
    component_type: str
    billing_period: date
    usage: Decimal
    date: datetime
    description: str = ""
    recurring: bool = False
    modified_by_uuid: str | None = None


@dataclass(kw_only=True)
class UserUsage(Modified):
    component_usage_uuid: str
    username: str
    usage: Decimal
    offering_user_uuid: str | None = None


@dataclass(kw_only=True)
class UserUsageLimit(Record):
    resource_uuid: str
    component_type: str
    offering_user_uuid: str
    limit: Decimal


@dataclass(kw_only=True)
class SharedAccount(Modified):
    """A service account or a course account; the site agent only reads them."""

    # `project` for a service account, `course`.
    kind: str
    project_uuid: str
    username: str
    state: str = "OK"
    email: str = ""
    description: str = ""
    user_uuid: str | None = None
