# SPDX-License-Identifier: MIT
"""How soon a task comes back is a matter of what went wrong."""

import pytest

from agent.core.errors import AnswerTooSlow, BackendUnavailable, SiteAgentError
from agent.core.retries import COUNTDOWN_MAX_S, policy_for


@pytest.mark.parametrize(
    ("error", "soonest_s", "latest_s"),
    [
        (BackendUnavailable("slurmdbd is away"), 4, 6),
        (AnswerTooSlow("`sacct` gave no answer"), COUNTDOWN_MAX_S, COUNTDOWN_MAX_S),
    ],
)
def test_a_read_that_was_killed_is_not_asked_again_at_once(
    error: SiteAgentError, soonest_s: float, latest_s: float
) -> None:
    waits = [policy_for(error).countdown_s(0, chance) for chance in (-1.0, 0.0, 1.0)]
    assert soonest_s <= min(waits) <= max(waits) <= latest_s
