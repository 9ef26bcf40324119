# SPDX-License-Identifier: MIT
"""Processes, locks, and the contract that every backend keeps."""
