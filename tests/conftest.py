# SPDX-License-Identifier: MIT
"""Fixtures of all tests: the real parts live in tests.real, the simulated Waldur in agent.sim."""

pytest_plugins = ["tests.real.fixtures"]
