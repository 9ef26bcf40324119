# SPDX-License-Identifier: MIT
"""Tests of the real parts themselves, and of facts about them."""
