# SPDX-License-Identifier: MIT
"""A backend in memory that takes periodic limits as well: fairshare, limits of three types, resets of raw usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.core.actions import ClusterAction
from agent.core.errors import BackendError
from agent.core.periodic import DesiredSettings, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage, SetFairshare, SetPeriodicLimits
from agent.core.plans import Outcome
from backends.testing.memory import MemoryBackend


@dataclass
class AccountSettings:
    """Settings of one account."""

    # None for the share of the account above.
    share: int | None = None
    limits: dict[LimitType, dict[str, int]] = field(default_factory=dict)
    # How often its raw usage was reset.
    resets: int = 0


class PeriodicMemory:
    """Periodic settings by account."""

    def __init__(self, backend: MemoryBackend) -> None:
        self.accounts: defaultdict[str, AccountSettings] = defaultdict(AccountSettings)
        # It says yes to settings and does nothing.
        self.ignores_settings = False
        self._backend = backend

    def state(self, account: str) -> ObservedSettings | None:
        self._backend.must_work("state")
        self._backend.executed["read"] += 1
        if account not in self._backend.state.accounts:
            return None
        held = self.accounts[account]
        return ObservedSettings(held.share, {kind: dict(values) for kind, values in held.limits.items()})

    def cannot(self, _asked: DesiredSettings, _observed: ObservedSettings) -> str:
        return ""

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """Carry out in their order; what fails ends it. It may fail before a command, and after one that was done."""
        outcomes: list[Outcome] = []
        for action in actions:
            try:
                self._backend.must_work("before the command")
                self._backend.executed["write"] += 1
                self._carry_out(action)
                self._backend.must_work("after the command")
            except BackendError as error:
                return [*outcomes, Outcome(action, error, (f"try {action.line()}",))]
            outcomes.append(Outcome(action, None, (action.line(),)))
        return outcomes

    def _carry_out(self, action: ClusterAction) -> None:
        if self._backend.refuses(action):
            raise BackendError("no")
        held = self.accounts[action.account]
        match action:
            case ResetRawUsage():
                held.resets += 1
            case _ if self.ignores_settings:
                return
            case SetFairshare():
                held.share = action.after
            case SetPeriodicLimits():
                held.limits.setdefault(LimitType(action.limit_type), {}).update(action.after)
            case _:
                raise BackendError(f"there is no periodic setting for {action.verb}")


class PeriodicMemoryBackend(MemoryBackend):
    """The backend in memory, with this power."""

    def __init__(self) -> None:
        super().__init__()
        self.periodic = PeriodicMemory(self)
