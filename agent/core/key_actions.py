# SPDX-License-Identifier: MIT
"""Keys of resources: what a backend does with them, and what is reported to Waldur. No action has a secret in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from agent.core.actions import FREE, NO_PARTS, Action, Effect, Target, Where
from agent.core.model import Part, Snapshot
from agent.core.policy import Charge, Cost, PolicyRules
from agent.core.usage_actions import Amounts, changed_amounts
from agent.core.waldur_actions import WaldurAction

KEY_IDS: Mapping[str, str] = {"resource": "resource", "account": "account"}


class KeyAction(Action):
    """Done on the cluster with one key, as its owner asked in Waldur."""

    subject = "{client_id} of {account}"

    where: ClassVar[Where] = Where.CLUSTER
    target: ClassVar[Target] = Target.RESOURCE
    parts: ClassVar[frozenset[Part]] = NO_PARTS
    costs: ClassVar[frozenset[Cost]] = frozenset({Cost.KEYS_ENDED})
    identifiers: ClassVar[Mapping[str, str]] = KEY_IDS

    key: str
    resource: str
    account: str
    # The key's name on the cluster.
    client_id: str

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return True

    def charges(self, snapshot: Snapshot, rules: PolicyRules) -> tuple[Charge, ...]:
        """Return that whoever uses the key is locked out; an account may have several keys."""
        felt = self.is_felt(snapshot, rules)
        return tuple(Charge(cost, self.account, self.client_id) for cost in self.costs if felt)


@dataclass(frozen=True, kw_only=True)
class IssueKey(KeyAction):
    """Make a key, or a new secret for one that is there, whose old one is invalid then."""

    effect = Effect.ADD
    key: str
    resource: str
    account: str
    client_id: str
    # There is one already; it gets a new secret.
    replaces: bool = False

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return self.replaces


@dataclass(frozen=True, kw_only=True)
class PauseKey(KeyAction):
    """Make a key invalid until it is resumed."""

    effect = Effect.CHANGE
    key: str
    resource: str
    account: str
    client_id: str


@dataclass(frozen=True, kw_only=True)
class ResumeKey(KeyAction):
    effect, costs = Effect.CHANGE, FREE
    key: str
    resource: str
    account: str
    client_id: str


@dataclass(frozen=True, kw_only=True)
class EndKey(KeyAction):
    """Make a key invalid permanently, as its owner asked. One that is gone already is ended."""

    effect = Effect.CHANGE
    key: str
    resource: str
    account: str
    client_id: str
    # Its secret was given to no user.
    is_unused: bool = False

    def is_felt(self, snapshot: Snapshot, rules: PolicyRules) -> bool:
        return not self.is_unused


@dataclass(frozen=True, kw_only=True)
class ReportKey(WaldurAction):
    """Give Waldur the secret of a key that was issued; the action itself does not know it."""

    subject = "{key}"
    target, identifiers = Target.RESOURCE, {}
    key: str


@dataclass(frozen=True, kw_only=True)
class ConfirmKey(WaldurAction):
    """Report to Waldur that a key is as it asked for."""

    subject = "{key} {state}"
    target, identifiers = Target.RESOURCE, {}
    key: str
    # `paused` or `ok`.
    state: str


@dataclass(frozen=True, kw_only=True)
class ReportKeyUsage(WaldurAction):
    """Set what was used with a key in a month, written `2024-03`; amounts in Waldur's units."""

    verb = "report usage of key"
    subject = "{client_id} of {account} in {month}: {figures}"
    target, identifiers = Target.RESOURCE, KEY_IDS
    key: str
    resource: str
    account: str
    client_id: str
    month: str
    before: Amounts = field(default=(), compare=False)
    after: Amounts

    @property
    def figures(self) -> str:
        return changed_amounts(self.before, self.after)
