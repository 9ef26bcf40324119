# SPDX-License-Identifier: MIT
"""The site agent: what Waldur wants, what the cluster has, and the steps between them."""

__version__ = "0.1.0.dev0"
