# SPDX-License-Identifier: MIT
"""HTTP for every client of ours: connections within bounds, answers read whole."""
