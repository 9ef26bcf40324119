# SPDX-License-Identifier: MIT
"""Tests of homes as a use case."""
