# SPDX-License-Identifier: MIT
"""Order processing."""
