# SPDX-License-Identifier: MIT
"""How often, and after which waits, work that failed is done again: by what went wrong. Tasks have the whole table, and
the loader of months the policies for a cluster or a Waldur that is away, and for a database that is slow.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.core.backoff import Backoff, RetryPolicy
from agent.core.errors import (
    AnswerTooSlow,
    BackendUnavailable,
    ClusterBusy,
    JobsStillActive,
    OfferingPaused,
    PassUnfinished,
    SiteAgentError,
)

# The longest wait: a message that waits longer in a worker is handed out a second time by some brokers.
COUNTDOWN_MAX_S = 300

# Ten minutes in all.
AWAY = RetryPolicy(10, Backoff(base_s=5, cap_s=120, jitter=0.2))
# slurmdbd goes on with a query whose client was killed: it is asked again as seldom as may be.
SLOW = RetryPolicy(3, Backoff(base_s=COUNTDOWN_MAX_S, cap_s=COUNTDOWN_MAX_S, jitter=0))
# After the last attempt the next poll goes on.
POLICIES: Mapping[type[SiteAgentError], RetryPolicy] = {
    PassUnfinished: RetryPolicy(100, Backoff(base_s=1, cap_s=2, jitter=0.2)),
    JobsStillActive: RetryPolicy(10, Backoff(base_s=20, cap_s=120, jitter=0.2)),
    ClusterBusy: RetryPolicy(10, Backoff(base_s=10, cap_s=60, jitter=0.2)),
    BackendUnavailable: AWAY,
    AnswerTooSlow: SLOW,
    # For a day, or a little longer.
    OfferingPaused: RetryPolicy(300, Backoff(base_s=COUNTDOWN_MAX_S, cap_s=COUNTDOWN_MAX_S, jitter=0)),
    SiteAgentError: RetryPolicy(10, Backoff(base_s=5, cap_s=COUNTDOWN_MAX_S, jitter=0.2)),
}


def policy_for(error: SiteAgentError) -> RetryPolicy:
    return next(POLICIES[kind] for kind in type(error).__mro__ if kind in POLICIES)
