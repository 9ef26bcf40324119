# SPDX-License-Identifier: MIT
"""Seconds and megabytes on the real parts, and the big runs whose tenth the tests make. `make bench`."""
