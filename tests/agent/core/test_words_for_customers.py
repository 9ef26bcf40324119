# SPDX-License-Identifier: MIT
"""What Waldur shows of an error, with `expose_backend_error_details` and without."""

from __future__ import annotations

import pytest

from agent.core.errors import (
    INTERNAL,
    BackendError,
    CommandFailed,
    PlanRefused,
    SiteAgentError,
    StateError,
    words_for_customers,
)

FAILED = CommandFailed(
    ["ssh", "head1", "sacctmgr", "-i", "delete"], returncode=1, stdout="", stderr="Job active\n"
)


@pytest.mark.parametrize(
    ("error", "with_details", "words"),
    [
        (FAILED, True, "`ssh head1 sacctmgr -i delete` ended with 1: Job active"),
        (FAILED, False, "Job active"),
        (BackendError("no such QoS"), False, "no such QoS"),
        (PlanRefused("the slug is empty"), False, "the slug is empty"),
        (StateError("/var/lib/site is full"), False, INTERNAL),
        (StateError("/var/lib/site is full"), True, "/var/lib/site is full"),
    ],
)
def test_words(error: SiteAgentError, with_details: bool, words: str) -> None:
    assert words_for_customers(error, with_details=with_details) == words
