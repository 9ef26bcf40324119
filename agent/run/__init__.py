# SPDX-License-Identifier: MIT
"""The passes: the reconcile loop, and a room for each mode. Called by tasks and by the CLI."""
