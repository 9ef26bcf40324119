# SPDX-License-Identifier: MIT
"""A pytest plugin for authors of backends: `pytest_plugins = ["backends.testing.plugin"]` in conftest.py.

It brings the fixture `backend` of the contract, and shows the values that a failed case compared. A test of the
contract is skipped where one that it needs has failed: one mistake is one failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from backends.base import Backend

if TYPE_CHECKING:
    from backends.testing.contract import Subject

pytest.register_assert_rewrite("backends.testing.contract")

# What every test on the accounts of all tests needs.
READ = "test_a_grown_cluster_is_read_at_the_same_cost"
# By class and subject: the tests that have failed, or were skipped for one that has, each with that one.
FAILED = pytest.StashKey[dict[tuple[object, object], dict[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "needs(*tests): skipped where one of these of the same class has failed"
    )
    config.stash[FAILED] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marks = list(item.iter_markers("needs"))
    needed = [name for mark in marks for name in mark.args]
    if marks and "backend" in getattr(item, "fixturenames", ()) and _name(item) != READ:
        needed.append(READ)
    failed = item.config.stash[FAILED].get(_place(item), {})
    if first := next((failed[name] for name in needed if name in failed), ""):
        failed[_name(item)] = first
        pytest.skip(f"not tried: {first} failed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    if report.failed:
        item.config.stash[FAILED].setdefault(_place(item), {})[_name(item)] = _name(item)
    return report


def _place(item: pytest.Item) -> tuple[object, object]:
    callspec = getattr(item, "callspec", None)
    return getattr(item, "cls", None), callspec.params.get("subject") if callspec else None


def _name(item: pytest.Item) -> str:
    return getattr(item, "originalname", item.name)


@pytest.fixture(scope="module")
def backend(subject: Subject) -> Backend:
    """Return the backend under contract, on a cluster with the accounts of all tests."""
    from backends.testing.contract import prepared  # after its assertions are registered

    return prepared(subject)
