# SPDX-License-Identifier: MIT
"""Decides which actions of a batch must not be tried after others failed. Every backend asks it."""

from __future__ import annotations

from agent.core.actions import Action, ClusterObject, ObjectKind, RemoveMember
from agent.core.errors import BackendError, BackendUnavailable, SiteAgentError
from agent.core.plans import Outcome

NOT_TRIED = "not tried: the accounting database does not answer"


class FailurePropagation:
    """Stop everything after an outage; all in an account that could not be made, and what needs its QoS to begin at
    zero where that failed; and what awaits an end that did not
    come: the removal of a member whose jobs or default account still need it, or who would stay in other accounts and
    without a default account, of an account with such members, or with others below it that stay.

    A member, a QoS and a closed door may be there already, whatever the command said: what needs these is tried.
    """

    def __init__(self) -> None:
        self._outage = False
        self._unmade: dict[ClusterObject, SiteAgentError] = {}
        self._staying: dict[str, BackendError] = {}
        self._unended: dict[tuple[ObjectKind, str], list[tuple[ClusterObject, BackendError]]] = {}

    def note(self, outcome: Outcome) -> None:
        """Record what an outcome means for the actions after it."""
        action, error = outcome.action, outcome.error
        if error is None:
            return
        if isinstance(error, BackendUnavailable):
            self._outage = True
        for thing in action.objects(action.makes):
            if thing.kind in (ObjectKind.ACCOUNT, ObjectKind.FRESH_QOS):
                self._unmade[thing] = error
        if isinstance(error, BackendError):
            if isinstance(action, RemoveMember):
                self._staying[action.user] = error
            for thing in action.objects(action.ends):
                if thing.kind is not ObjectKind.SUBMISSION:
                    self._unended.setdefault((thing.kind, thing.account), []).append((thing, error))

    def error_for(self, action: Action) -> SiteAgentError | None:
        """Return why an action must not be tried, None when it may."""
        if self._outage:
            return BackendUnavailable(NOT_TRIED)  # what it said stands with the action that was tried
        if isinstance(action, RemoveMember) and action.is_default and action.user in self._staying:
            return self._staying[action.user]
        for thing in action.objects(action.needs):
            if thing in self._unmade:
                return self._unmade[thing]
        for awaited in action.objects(action.awaits):
            for thing, error in self._unended.get((awaited.kind, awaited.account), ()):
                if thing.covers(awaited):
                    return error
        return None
