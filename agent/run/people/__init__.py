# SPDX-License-Identifier: MIT
"""Provisioning of usernames, groups and homes."""
