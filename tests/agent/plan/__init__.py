# SPDX-License-Identifier: MIT
"""The pure planners: tables of cases, and properties over many small clusters."""
