# SPDX-License-Identifier: MIT
"""Periodic limits."""
