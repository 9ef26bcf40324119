# SPDX-License-Identifier: MIT
"""A pytest plugin for authors of backends: `pytest_plugins = ["backends.testing.plugin"]` in conftest.py.

It brings the fixture `backend` of the contract, and shows the values that a failed case compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backends.base import Backend

if TYPE_CHECKING:
    from backends.testing.contract import Subject

pytest.register_assert_rewrite("backends.testing.contract")


@pytest.fixture(scope="module")
def backend(subject: Subject) -> Backend:
    """Return the backend under contract, on a cluster with the accounts of all tests."""
    from backends.testing.contract import prepared  # after its assertions are registered

    return prepared(subject)
