# SPDX-License-Identifier: MIT
"""The real user database of this machine: known, unknown, and not to be known."""

from __future__ import annotations

import pwd
import subprocess
import sys

import pytest

from backends.storage import passwd
from backends.storage.passwd import PasswdEntry, UserDatabaseUnavailable, lookup, resolve
from rig.processes import REPOSITORY

ROOT_ENTRY = pwd.getpwuid(0)
NO_USER = "no_such_user_here"


def test_a_known_user_is_found_as_the_system_writes_them() -> None:
    assert lookup(ROOT_ENTRY.pw_name) == PasswdEntry(ROOT_ENTRY.pw_name, 0, 0, ROOT_ENTRY.pw_dir)


def test_every_user_of_this_machine_is_found() -> None:
    for user in pwd.getpwall():
        assert lookup(user.pw_name) == PasswdEntry(user.pw_name, user.pw_uid, user.pw_gid, user.pw_dir)


def test_an_unknown_user_is_absent() -> None:
    assert lookup(NO_USER) is None


def test_names_are_never_searched_as_something_else() -> None:
    assert [lookup(name) for name in ("", "0", "root\n", "roo", "ROOT", "x" * 100_000)] == [None] * 6


def test_an_error_of_the_database_is_not_an_absence() -> None:
    """No file can be opened any more: the real database gives EMFILE, which `pwd.getpwnam` takes for "not found"."""
    script = f"""
import pwd, resource
from backends.storage.passwd import UserDatabaseUnavailable, lookup
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for name in ("root", {NO_USER!r}):
    try:
        lookup(name)
    except UserDatabaseUnavailable as error:
        print(error.retryable, error)
    try:
        pwd.getpwnam(name)
    except KeyError:
        print("KeyError")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[1::2] == ["KeyError", "KeyError"]
    assert all(line.startswith("True the system's user database cannot say who") for line in lines[::2])
    assert "Too many open files" in lines[0]


def test_a_long_entry_gets_a_larger_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwd, "FIRST_BUFFER_BYTES", 1)
    assert lookup(ROOT_ENTRY.pw_name) == PasswdEntry(ROOT_ENTRY.pw_name, 0, 0, ROOT_ENTRY.pw_dir)


# Many names ---------------------------------------------------------------------------------------


def known(name: str) -> PasswdEntry | None:
    return PasswdEntry(name, 2000, 2000, f"/home/{name}") if name.startswith("k") else None


def test_names_are_known_or_absent() -> None:
    found = resolve(["k1", "a1", "k2"], known)
    assert [entry.name for entry in found.entries] == ["k1", "k2"]
    assert (found.absent, found.unknown, found.trouble) == (("a1",), (), None)


def test_after_an_error_no_other_user_is_asked_for() -> None:
    asked = []

    def ask(name: str) -> PasswdEntry | None:
        asked.append(name)
        if name == "k2":
            raise UserDatabaseUnavailable("no")
        return known(name)

    found = resolve(["k1", "a1", "k2", "k3", "a2"], ask)
    assert asked == ["k1", "a1", "k2"]
    assert (found.absent, found.unknown) == (("a1",), ("k2", "k3", "a2"))
    assert str(found.trouble) == "no"


def test_out_of_time_the_rest_is_unknown() -> None:
    ticks = iter([True, True, False, False])
    found = resolve(["k1", "a1", "k2", "a2"], known, in_time=lambda: next(ticks))
    assert (found.absent, found.unknown, found.trouble) == (("a1",), ("k2", "a2"), None)
