# SPDX-License-Identifier: MIT
"""The vocabulary: values, actions, errors and units. Imports nothing else of ours."""
