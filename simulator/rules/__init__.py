# SPDX-License-Identifier: MIT
"""What the simulated server allows, and what its moves do to the rows."""
