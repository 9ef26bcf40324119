# SPDX-License-Identifier: MIT
"""Import of accounts that stand already."""
