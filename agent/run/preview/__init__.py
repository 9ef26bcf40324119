# SPDX-License-Identifier: MIT
"""The loop without apply: plans, saved plans, drift."""
