# SPDX-License-Identifier: MIT
"""The command `historical-usage`."""
