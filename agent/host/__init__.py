# SPDX-License-Identifier: MIT
"""This host: files below `state_dir` with the rights of their owner, children, heartbeats, waits."""
