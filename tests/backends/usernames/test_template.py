# SPDX-License-Identifier: MIT
"""Names from a format, without a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Severity
from agent.core.errors import BackendError, BackendUnavailable
from backends.usernames.base import UsernameBackend, UsernameContext
from backends.usernames.template import plugin
from tests.backends.usernames.conftest import person


def usernames(context: UsernameContext, **settings: Any) -> UsernameBackend:
    parsed = plugin.parse({"usernames": settings}, "test")
    assert parsed.settings is not None, parsed.problems
    return plugin.connect(parsed.settings, context)


def test_a_name_is_taken_by_waldur_by_the_cluster_by_the_host_and_by_this_pass(tmp_path: Path) -> None:
    context = UsernameContext("o", tmp_path, {"jsmith": "somebody"}, lambda: frozenset({"jsmith2", "daemon"}))
    backend = usernames(context)
    assert [backend.make(person(1)), backend.make(person(2))] == ["jsmith3", "jsmith4"]
    assert backend.make(person(1)) == "jsmith3"
    # root is of NEVER, bin and games are users of this host
    named = [
        backend.make(person(3, first, last)) for first, last in (("R", "Oot"), ("B", "In"), ("G", "Ames"))
    ]
    assert named == ["root2", "bin2", "games2"]
    assert backend.find(person(1)) == ""


def test_all_numbers_taken_is_an_error_that_says_so(tmp_path: Path) -> None:
    taken = {"jsmith": "a", "jsmith2": "b", "jsmith3": "c"}
    backend = usernames(UsernameContext("o", tmp_path, taken), last_counter=3)
    with pytest.raises(BackendError, match="taken, up to number 3"):
        backend.make(person())


def test_a_cluster_that_cannot_be_read_gives_no_name(tmp_path: Path) -> None:
    def away() -> frozenset[str]:
        raise BackendUnavailable("slurmdbd is away")

    with pytest.raises(BackendUnavailable):
        usernames(UsernameContext("o", tmp_path, {}, away)).make(person())


def test_settings_are_checked_all_at_once() -> None:
    parsed = plugin.parse(
        {"usernames": {"format": "{nobody}", "max_length": 50, "last_counter": "x", "formt": 1}}, "s"
    )
    assert parsed.settings is None
    found = {p.path: p.severity for p in parsed.problems}
    assert found == {
        "s.usernames.format": Severity.ERROR,
        "s.usernames.max_length": Severity.ERROR,
        "s.usernames.last_counter": Severity.ERROR,
        "s.usernames.formt": Severity.WARNING,
    }
    assert plugin.parse({"usernames": ["x"]}, "s").settings is None
    assert plugin.parse({"usernames": {"format": None}}, "s").settings == plugin.parse({}, "s").settings
