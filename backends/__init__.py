# SPDX-License-Identifier: MIT
"""Clusters: accounts, members, limits, usage. Nothing here knows of Waldur, orders or the queue."""
