# SPDX-License-Identifier: MIT
"""What of a batch must not happen any more after what failed before it; the same for every backend."""

from __future__ import annotations

from agent.core.actions import (
    CancelJobs,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    DeleteQos,
    MoveDefaultAccount,
    RemoveMember,
)
from agent.core.errors import BackendError, BackendUnavailable, SiteAgentError
from agent.core.plans import Outcome

NOT_TRIED = "not tried: the accounting database does not answer"


class Stops:
    """What must not go on: everything after an outage; all in an account that could not be made; the removal of
    a member whose jobs or default account still need it, and of an account with such members, or with others below
    it that stay.
    """

    def __init__(self) -> None:
        self._outage = False
        self._unmade: dict[str, SiteAgentError] = {}
        self._members: dict[tuple[str, str], BackendError] = {}
        self._accounts: dict[str, BackendError] = {}

    def note(self, outcome: Outcome) -> None:
        action, error = outcome.action, outcome.error
        if isinstance(error, BackendUnavailable):
            self._outage = True
        if error is not None and isinstance(action, CreateAccount):
            self._unmade[action.account] = error
        if not isinstance(error, BackendError):
            return
        if isinstance(action, MoveDefaultAccount):
            self._members.setdefault((action.before, action.user), error)
            self._accounts.setdefault(action.before, error)
        if isinstance(action, CancelJobs):
            self._members.setdefault((action.account, action.user), error)
        if isinstance(action, CancelJobs | RemoveMember | DeleteAccount):
            self._accounts.setdefault(action.account, error)
        if isinstance(action, DeleteAccount):
            self._accounts.setdefault(action.parent, error)

    def error_for(self, action: ClusterAction) -> SiteAgentError | None:
        if self._outage:
            return BackendUnavailable(NOT_TRIED)  # what it said stands with the action that was tried
        place = action.parent if isinstance(action, CreateAccount) else action.account
        if place in self._unmade:
            return self._unmade[place]
        if isinstance(action, RemoveMember):
            whole = self._members.get((action.account, ""))
            return whole or self._members.get((action.account, action.user))
        return self._accounts.get(action.account) if isinstance(action, DeleteAccount | DeleteQos) else None
