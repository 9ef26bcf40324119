# SPDX-License-Identifier: MIT
"""The commands `usage` and `usage-check`."""
