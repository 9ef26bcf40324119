# SPDX-License-Identifier: MIT
"""What is done in Waldur, for one order or resource, one verb each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from agent.core.actions import Action


class WaldurAction(Action):
    """Done in Waldur, for one order or resource."""


@dataclass(frozen=True, kw_only=True)
class ApproveOrder(WaldurAction):
    verb: ClassVar[str] = "approve order"
    order: str

    def target(self) -> str:
        return self.order


@dataclass(frozen=True, kw_only=True)
class ClaimAccount(WaldurAction):
    """Write the account's name to the resource: for a new one before it is made, so that a crash finds it again;
    without an order, for a resource that lost it.
    """

    verb: ClassVar[str] = "claim account"
    order: str = ""
    resource: str
    account: str

    def target(self) -> str:
        return f"{self.account} for resource {self.resource}"


@dataclass(frozen=True, kw_only=True)
class ReportLimits(WaldurAction):
    """Show in Waldur, in its units, the limits that the account was given."""

    verb: ClassVar[str] = "report limits"
    resource: str
    limits: tuple[tuple[str, Any], ...]

    def target(self) -> str:
        return f"of resource {self.resource}: {' '.join(f'{k}={v}' for k, v in self.limits)}"


@dataclass(frozen=True, kw_only=True)
class CompleteOrder(WaldurAction):
    verb: ClassVar[str] = "complete order"
    order: str

    def target(self) -> str:
        return self.order


@dataclass(frozen=True, kw_only=True)
class FailOrder(WaldurAction):
    """Set an order erred, for a fault of its own. `message` is what its consumer reads."""

    verb: ClassVar[str] = "fail order"
    order: str
    message: str

    def target(self) -> str:
        return f"{self.order}: {self.message}"


@dataclass(frozen=True, kw_only=True)
class ReportMetadata(WaldurAction):
    """Replace what Waldur shows of the resource's backend (`backend_metadata`); `metadata` is its JSON text."""

    verb: ClassVar[str] = "report metadata"
    resource: str
    metadata: str

    def target(self) -> str:
        return f"of resource {self.resource}: {self.metadata}"


@dataclass(frozen=True, kw_only=True)
class RefreshLastSync(WaldurAction):
    verb: ClassVar[str] = "refresh last sync"
    resource: str

    def target(self) -> str:
        return f"of resource {self.resource}"


@dataclass(frozen=True, kw_only=True)
class HealResource(WaldurAction):
    """Set an erred resource OK: its account stands and agrees with Waldur."""

    verb: ClassVar[str] = "heal resource"
    resource: str

    def target(self) -> str:
        return self.resource


@dataclass(frozen=True, kw_only=True)
class FailResource(WaldurAction):
    """Set a resource erred, with what its owner and the operator should know."""

    verb: ClassVar[str] = "fail resource"
    resource: str
    message: str

    def target(self) -> str:
        return f"{self.resource}: {self.message}"
