# SPDX-License-Identifier: MIT
"""The agent as a service: its configuration, who serves which mode, its presence and its log in Waldur."""
