# SPDX-License-Identifier: MIT
"""What is done in Waldur, for one order or resource, one verb each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from agent.core.actions import (
    ACCOUNT_ID,
    FREE,
    NO_PARTS,
    Action,
    Effect,
    ObjectKind,
    ObjectRef,
    Target,
    Where,
)
from agent.core.model import Part
from agent.core.policy import Cost

ORDER_ID: Mapping[str, str] = {"order": "order"}
RESOURCE_ID: Mapping[str, str] = {"resource": "resource"}


class WaldurAction(Action):
    """Done in Waldur, for one order, resource or person: no user loses anything by it."""

    where: ClassVar[Where] = Where.WALDUR
    effect: ClassVar[Effect] = Effect.TELL
    parts: ClassVar[frozenset[Part]] = NO_PARTS
    costs: ClassVar[frozenset[Cost]] = FREE
    # The name of a call that not every server has; where it is known to be lacking nothing is done.
    feature: ClassVar[str] = ""


@dataclass(frozen=True, kw_only=True)
class ApproveOrder(WaldurAction):
    subject = "{order}"
    target, identifiers = Target.ORDER, ORDER_ID
    order: str


@dataclass(frozen=True, kw_only=True)
class ClaimAccount(WaldurAction):
    """Write the account's name to the resource: for a new one before it is made, so that a crash finds it again;
    without an order, for a resource that lost it.
    """

    subject = "{account} for resource {resource}"
    target, identifiers = Target.RESOURCE, {**ORDER_ID, **RESOURCE_ID, **ACCOUNT_ID}
    needs = (ObjectRef(ObjectKind.ACCOUNT),)
    order: str = ""
    resource: str
    account: str


@dataclass(frozen=True, kw_only=True)
class ReleaseAccount(WaldurAction):
    """Take the account's name from a new resource again: another resource has it, and the next pass looks for another
    name.
    """

    subject = "{account} from resource {resource}"
    target, identifiers = Target.RESOURCE, {**ORDER_ID, **RESOURCE_ID, **ACCOUNT_ID}
    order: str
    resource: str
    account: str


@dataclass(frozen=True, kw_only=True)
class ReportLimits(WaldurAction):
    """Show in Waldur, in its units, the limits that the account was given."""

    subject = "of resource {resource}: {limits}"
    target, identifiers, feature = Target.RESOURCE, RESOURCE_ID, "set_limits"
    resource: str
    limits: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class CompleteOrder(WaldurAction):
    subject = "{order}"
    target, identifiers = Target.ORDER, ORDER_ID
    order: str


@dataclass(frozen=True, kw_only=True)
class MarkAllocationOk(WaldurAction):
    """Bring the allocation object to OK that a server of 2024 keeps behind a resource."""

    verb = "mark allocation OK"
    subject = "of resource {resource}"
    target, identifiers = Target.RESOURCE, {**ORDER_ID, **RESOURCE_ID}
    feature = "allocation set_state"
    order: str
    resource: str


@dataclass(frozen=True, kw_only=True)
class FailOrder(WaldurAction):
    """Set an order erred, for a fault of its own, which its consumer reads."""

    subject = "{order}: {message}"
    target, identifiers = Target.ORDER, ORDER_ID
    order: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RejectOrder(WaldurAction):
    """Reject an order that waits for approval, as the site's own hook says; its consumer reads why."""

    subject = "{order}{why}"
    target, identifiers = Target.ORDER, ORDER_ID
    order: str
    message: str

    @property
    def why(self) -> str:
        return f": {self.message}" if self.message else ""


@dataclass(frozen=True, kw_only=True)
class ReportMetadata(WaldurAction):
    """Set keys of what Waldur shows of the resource's backend (`backend_metadata`)."""

    subject = "of resource {resource}: {metadata}"
    target, identifiers = Target.RESOURCE, RESOURCE_ID
    resource: str
    # Their JSON text.
    metadata: str


@dataclass(frozen=True, kw_only=True)
class RefreshLastSync(WaldurAction):
    subject = "of resource {resource}"
    target, identifiers, feature = Target.RESOURCE, RESOURCE_ID, "refresh_last_sync"
    resource: str


@dataclass(frozen=True, kw_only=True)
class MarkResourceOk(WaldurAction):
    """Set an erred resource OK: its account stands and agrees with Waldur."""

    verb = "mark resource OK"
    subject = "{resource}"
    target, identifiers, feature = Target.RESOURCE, RESOURCE_ID, "set_as_ok"
    resource: str


@dataclass(frozen=True, kw_only=True)
class FailResource(WaldurAction):
    """Set a resource erred, with what its owner and the operator should know."""

    subject = "{resource}: {message}"
    target, identifiers = Target.RESOURCE, RESOURCE_ID
    resource: str
    message: str


class MemberStatus(NamedTuple):
    """How far a person is on the cluster: `synced`, `pending` or `error`, with words for people."""

    person: str
    username: str
    role: str
    state: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ReportMembers(WaldurAction):
    """Show how far members are on the cluster, those of whom something else is to be said than before."""

    subject = "of resource {resource}: {states}"
    target, identifiers, feature = Target.RESOURCE, RESOURCE_ID, "set_membership_sync_statuses"
    resource: str
    statuses: tuple[MemberStatus, ...]

    @property
    def states(self) -> str:
        states = (f"{name or person} {state}" for person, name, _, state, _ in self.statuses)
        return ", ".join(states)


@dataclass(frozen=True, kw_only=True)
class RefuseKey(WaldurAction):
    """Set a resource's key erred that Waldur wants made or changed; its owner reads why."""

    subject = "{key}: {message}"
    target, identifiers = Target.RESOURCE, {}
    key: str
    message: str


@dataclass(frozen=True, kw_only=True)
class RegisterAgent(WaldurAction):
    """Show the agent at its offering: its identity with the version, a service by the mode's name, its processor."""

    subject = "with service {service} on {backend:no backend}"
    target, identifiers, feature = Target.OFFERING, {}, "marketplace-site-agent-identities"
    service: str
    backend: str = ""


@dataclass(frozen=True, kw_only=True)
class RenewService(WaldurAction):
    """Keep a service of the agent active: every few minutes, so that it has no line in the journal."""

    subject = "{service}"
    target, identifiers, feature = Target.OFFERING, {}, "marketplace-site-agent-identities"
    service: str

    @property
    def is_routine(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True)
class ConfirmKeyDeletion(WaldurAction):
    """Report to Waldur that a resource's key is deleted: it is ended, or was never here."""

    verb = "confirm deletion of key"
    subject = "{key}"
    target, identifiers = Target.RESOURCE, {}
    key: str


@dataclass(frozen=True, kw_only=True)
class OfferImport(WaldurAction):
    """Offer an account of the cluster that has no resource for import into a project."""

    subject = "of {account} into project {project}"
    target, identifiers = Target.ACCOUNT, ACCOUNT_ID
    account: str
    project: str
    # In Waldur's units.
    limits: tuple[tuple[str, Any], ...] = ()
