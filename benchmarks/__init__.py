# SPDX-License-Identifier: MIT
"""Seconds and megabytes on the real parts, and kills and floods whose tenth the tests make. `make bench`."""
