# SPDX-License-Identifier: MIT
"""Membership."""
