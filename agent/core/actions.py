# SPDX-License-Identifier: MIT
"""The actions a plan is made of, and the plan itself. One verb each, equal when they mean the same.

An action names its object by natural key and carries what was before and what shall be; `reason` is for
people and takes no part in equality, so that two orders which need the same customer account share one
action. CLI, log, journal and tests all show an action by its one-line `render`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from agent.core.errors import SiteAgentError


@dataclass(frozen=True, kw_only=True)
class Action:
    """Base of all actions. `account` is empty for actions that touch no account."""

    verb: ClassVar[str]
    reason: str = field(default="", compare=False)

    def target(self) -> str:
        raise NotImplementedError

    def render(self) -> str:
        return f"{self.verb} {self.target()}" + (f"  ({self.reason})" if self.reason else "")

    def as_json(self) -> dict[str, Any]:
        return {"action": type(self).__name__, **asdict(self), "text": self.render()}


class ClusterAction(Action):
    """Done by a backend, on the cluster."""

    account: str


class WaldurAction(Action):
    """Done in Waldur, for one order or resource."""


@dataclass(frozen=True, kw_only=True)
class CreateAccount(ClusterAction):
    verb: ClassVar[str] = "create account"
    account: str
    parent: str
    description: str = ""
    organization: str = ""

    def target(self) -> str:
        return f"{self.account} below {self.parent}"


@dataclass(frozen=True, kw_only=True)
class MoveAccount(ClusterAction):
    verb: ClassVar[str] = "move account"
    account: str
    before: str
    after: str

    def target(self) -> str:
        return f"{self.account} from {self.before} to {self.after}"


@dataclass(frozen=True, kw_only=True)
class SetLimits(ClusterAction):
    """Set GrpTRESMins of the named TRES (TRES-minutes); TRES not named keep theirs. `before` as observed."""

    verb: ClassVar[str] = "set limits"
    account: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def target(self) -> str:
        was = dict(self.before)
        changes = (f"{tres}={was.get(tres, 'none')}->{value}" for tres, value in self.after)
        return f"{self.account} {' '.join(changes)}"


@dataclass(frozen=True, kw_only=True)
class SetQos(ClusterAction):
    """Give an account exactly these QoS; the default is set with them, else SLURM refuses quietly (rc 0)."""

    verb: ClassVar[str] = "set QoS"
    account: str
    before: tuple[str, ...] = field(default=(), compare=False)
    after: tuple[str, ...]
    default: str

    def target(self) -> str:
        before, after = ",".join(self.before) or "none", ",".join(self.after)
        return f"{self.account} {before} -> {after} default {self.default}"


@dataclass(frozen=True, kw_only=True)
class CreateQos(ClusterAction):
    """Make a QoS for one account, named like it. `limits` in the backend's spelling."""

    verb: ClassVar[str] = "create QoS"
    account: str
    flags: str = ""
    limits: tuple[tuple[str, str], ...] = ()

    def target(self) -> str:
        words = (self.account, self.flags, *(f"{name}={value}" for name, value in self.limits))
        return " ".join(filter(None, words))


@dataclass(frozen=True, kw_only=True)
class DeleteQos(ClusterAction):
    """Remove the QoS that was made for an account, after the account itself."""

    verb: ClassVar[str] = "delete QoS"
    account: str

    def target(self) -> str:
        return self.account


@dataclass(frozen=True, kw_only=True)
class AddMember(ClusterAction):
    """Associate a user with an account. No partitions: all of them.

    `default_account` is what the user's default shall become, empty to leave that to the cluster;
    `present_default` what it is now, empty for a user who has none, None where that is not known.
    """

    verb: ClassVar[str] = "add member"
    account: str
    user: str
    default_account: str = ""
    present_default: str | None = field(default=None, compare=False)
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    default_qos: str = ""

    def target(self) -> str:
        extra = f" on {','.join(self.partitions)}" if self.partitions else ""
        return f"{self.user} to {self.account}{extra}"


@dataclass(frozen=True, kw_only=True)
class RemoveMember(ClusterAction):
    verb: ClassVar[str] = "remove member"
    account: str
    user: str
    is_sole_account: bool = field(default=False, compare=False)

    def target(self) -> str:
        return f"{self.user} from {self.account}"


@dataclass(frozen=True, kw_only=True)
class MoveDefaultAccount(ClusterAction):
    """Give a user another default account, before the present one goes away."""

    verb: ClassVar[str] = "move default account"
    account: str
    user: str
    before: str

    def target(self) -> str:
        return f"of {self.user} from {self.before} to {self.account}"


@dataclass(frozen=True, kw_only=True)
class BlockSubmission(ClusterAction):
    """No new jobs in this account (GrpSubmitJobs=0); running ones go on."""

    verb: ClassVar[str] = "block submission"
    account: str

    def target(self) -> str:
        return self.account


@dataclass(frozen=True, kw_only=True)
class AllowSubmission(ClusterAction):
    """New jobs are possible again (GrpSubmitJobs=-1)."""

    verb: ClassVar[str] = "allow submission"
    account: str

    def target(self) -> str:
        return self.account


@dataclass(frozen=True, kw_only=True)
class CancelJobs(ClusterAction):
    """Cancel all jobs of an account and wait, for a bounded time, until they have ended."""

    verb: ClassVar[str] = "cancel jobs"
    account: str
    jobs: int | None = field(default=None, compare=False)

    def target(self) -> str:
        return f"of {self.account}" + (f" ({self.jobs} active)" if self.jobs is not None else "")


@dataclass(frozen=True, kw_only=True)
class DeleteAccount(ClusterAction):
    verb: ClassVar[str] = "delete account"
    account: str
    parent: str = field(compare=False)

    def target(self) -> str:
        return f"{self.account} below {self.parent}"


@dataclass(frozen=True, kw_only=True)
class ApproveOrder(WaldurAction):
    verb: ClassVar[str] = "approve order"
    order: str

    def target(self) -> str:
        return self.order


@dataclass(frozen=True, kw_only=True)
class ClaimAccount(WaldurAction):
    """Write the account's name to the resource before the account is made: a crash then finds it again."""

    verb: ClassVar[str] = "claim account"
    order: str
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


KINDS: Mapping[str, type[Action]] = {
    kind.__name__: kind
    for kind in (
        CreateAccount, MoveAccount, SetLimits, SetQos, CreateQos, DeleteQos, AddMember, RemoveMember,
        MoveDefaultAccount, BlockSubmission, AllowSubmission, CancelJobs, DeleteAccount,
        ApproveOrder, ClaimAccount, ReportLimits, CompleteOrder, FailOrder,
    )
}  # fmt: skip


def action_from_json(record: Mapping[str, Any]) -> Action:
    """The action that `as_json` wrote. Raises KeyError for an unknown kind."""
    kind = KINDS[record["action"]]
    names = {f.name for f in fields(kind)}
    return kind(**{name: _frozen(value) for name, value in record.items() if name in names})


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in the order in which they must happen. Equal actions appear once."""

    actions: tuple[Action, ...] = ()

    @classmethod
    def of(cls, actions: Iterable[Action]) -> Plan:
        return cls(tuple(dict.fromkeys(actions)))

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)

    def __bool__(self) -> bool:
        return bool(self.actions)

    def cluster_actions(self) -> tuple[ClusterAction, ...]:
        return tuple(a for a in self.actions if isinstance(a, ClusterAction))

    def render(self) -> str:
        return "\n".join(action.render() for action in self.actions)

    def to_json(self) -> str:
        return json.dumps([action.as_json() for action in self.actions], ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return cls(tuple(action_from_json(record) for record in json.loads(text)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action. `error` is None when it was carried out."""

    action: Action
    error: SiteAgentError | None = None
    commands: tuple[str, ...] = ()
    duration_s: float = 0.0

    @property
    def done(self) -> bool:
        return self.error is None
