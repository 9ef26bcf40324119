# SPDX-License-Identifier: MIT
"""What the agent remembers on disk."""
