# SPDX-License-Identifier: MIT
"""HTTP side of the simulated server: routes, handlers, faults, request log."""
