# SPDX-License-Identifier: MIT
"""Rows of the simulated server as JSON, for each age."""
