# SPDX-License-Identifier: MIT
"""MOAB through the real layers: orders, members, reports and commands, on stand-ins for its programs."""
