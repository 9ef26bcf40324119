# SPDX-License-Identifier: MIT
"""The vocabulary: units, names, actions, errors."""
