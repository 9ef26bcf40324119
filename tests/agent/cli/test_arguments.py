# SPDX-License-Identifier: MIT
"""A token that was typed is found among the words of a command line, however it was written."""

from __future__ import annotations

import pytest

from agent.cli import arguments


@pytest.mark.parametrize(
    ("words", "tokens"),
    [
        ("historical-usage --user-token abc -s 2024-01-01", ["abc"]),
        ("historical-usage --user-token=abc", ["abc"]),
        ("historical-usage -t abc", ["abc"]),
        ("historical-usage -tabc", ["abc"]),
        ("historical-usage --user-token-file abc", []),
        ("historical-usage --user-token", []),
        ("historical-usage -s 2024-01-01", []),
    ],
)
def test_typed(words: str, tokens: list[str]) -> None:
    assert list(arguments.typed(words.split())) == tokens
