# SPDX-License-Identifier: MIT
"""Usage reports, and the checks of their figures."""
