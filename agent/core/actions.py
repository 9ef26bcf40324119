# SPDX-License-Identifier: MIT
"""What a backend does on the cluster, one verb each; actions are equal when they mean the same.

An action names its object by natural key and carries what was before and what shall be; `reason` is for
people and takes no part in equality, so that two orders which need the same customer account share one
action. CLI, log, journal and tests all show an action by its one-line `render`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

# Every kind of action that is defined, by name: to read them back from JSON.
KINDS: dict[str, type[Action]] = {}


@dataclass(frozen=True, kw_only=True)
class Action:
    """Base of all actions."""

    verb: ClassVar[str]
    reason: str = field(default="", compare=False)

    def __init_subclass__(cls) -> None:
        if "verb" in vars(cls):
            KINDS[cls.__name__] = cls

    def target(self) -> str:
        raise NotImplementedError

    @property
    def is_routine(self) -> bool:
        """Whether it is done for many at a time as a matter of course: it needs no line of its own in logs."""
        return False

    def render(self) -> str:
        return f"{self.verb} {self.target()}" + (f"  ({self.reason})" if self.reason else "")

    def as_json(self) -> dict[str, Any]:
        return {"action": type(self).__name__, **asdict(self), "text": self.render()}


class ClusterAction(Action):
    """Done by a backend, on the cluster."""

    account: str


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
    """Set limits by name, in the cluster's units (SLURM: GrpTRESMins); others stay. `before` as observed."""

    verb: ClassVar[str] = "set limits"
    account: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def target(self) -> str:
        return f"{self.account} {changed(self.before, self.after)}"


@dataclass(frozen=True, kw_only=True)
class SetUserLimits(ClusterAction):
    """Set limits of one user in an account (SLURM: MaxTRESMins, per job); -1 takes one away."""

    verb: ClassVar[str] = "set limits of user"
    account: str
    user: str
    before: tuple[tuple[str, int], ...] = field(default=(), compare=False)
    after: tuple[tuple[str, int], ...]

    def target(self) -> str:
        return f"{self.user} in {self.account} {changed(self.before, self.after)}"


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
    """End a user's association. `is_default`: it is the user's default account, and the last one they leave."""

    verb: ClassVar[str] = "remove member"
    account: str
    user: str
    is_default: bool = field(default=False, compare=False)

    def target(self) -> str:
        return f"{self.user} from {self.account}"


@dataclass(frozen=True, kw_only=True)
class MoveDefaultAccount(ClusterAction):
    """Give a user another default account, before the present one (empty: none) goes away."""

    verb: ClassVar[str] = "move default account"
    account: str
    user: str
    before: str

    def target(self) -> str:
        return f"of {self.user} from {self.before or 'none'} to {self.account}"


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
class BlockMember(ClusterAction):
    """No new jobs of one user in this account (MaxSubmitJobs=0), until their association goes."""

    verb: ClassVar[str] = "block member"
    account: str
    user: str

    def target(self) -> str:
        return f"{self.user} in {self.account}"


@dataclass(frozen=True, kw_only=True)
class AllowMember(ClusterAction):
    """A user whom we blocked came back before they were out: new jobs are possible again."""

    verb: ClassVar[str] = "allow member"
    account: str
    user: str

    def target(self) -> str:
        return f"{self.user} in {self.account}"


@dataclass(frozen=True, kw_only=True)
class CancelJobs(ClusterAction):
    """Cancel the jobs of an account, or of one user in it, and wait for a bounded time until they have ended."""

    verb: ClassVar[str] = "cancel jobs"
    account: str
    user: str = ""
    jobs: int | None = field(default=None, compare=False)

    def target(self) -> str:
        whose = f"of {self.user} in {self.account}" if self.user else f"of {self.account}"
        return whose + (f" ({self.jobs} active)" if self.jobs is not None else "")


@dataclass(frozen=True, kw_only=True)
class DeleteAccount(ClusterAction):
    verb: ClassVar[str] = "delete account"
    account: str
    parent: str = field(compare=False)

    def target(self) -> str:
        return f"{self.account} below {self.parent}"


def changed(before: Iterable[tuple[str, Any]], after: Iterable[tuple[str, Any]]) -> str:
    """`cpu=5->6 mem=none->0`: what becomes of each value."""
    was = dict(before)
    return " ".join(f"{name}={was.get(name, 'none')}->{value}" for name, value in after)
