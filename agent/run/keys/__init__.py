# SPDX-License-Identifier: MIT
"""Keys of resources, and what was used with them."""
