# SPDX-License-Identifier: MIT
"""What became of names, groups and the like beside the accounts."""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.errors import SiteAgentError
from agent.core.plans import Outcome


@dataclass(frozen=True, slots=True)
class ProvisioningReport:
    """What was done; `error` is why nothing, or nothing more, could be looked at."""

    outcomes: tuple[Outcome, ...] = ()
    error: SiteAgentError | None = None

    @property
    def retryable_error(self) -> SiteAgentError | None:
        """The first reason to come back soon."""
        errors = (self.error, *(outcome.error for outcome in self.outcomes))
        return next((error for error in errors if error is not None and error.retryable), None)
