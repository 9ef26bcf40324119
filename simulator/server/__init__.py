# SPDX-License-Identifier: MIT
"""Requests of the simulated server: routes, dispatch, faults, sockets."""
