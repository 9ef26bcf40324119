# SPDX-License-Identifier: MIT
"""The endpoints of the simulated server, one module per area of its REST API."""
