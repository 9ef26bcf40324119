# SPDX-License-Identifier: MIT
"""Tests of homes and quotas on the head node."""
