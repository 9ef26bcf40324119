# SPDX-License-Identifier: MIT
"""Look at a site without changing it: checks of the host and of each offering, and single accounts and people."""
