# SPDX-License-Identifier: MIT
"""Tests of the simulated Waldur."""
