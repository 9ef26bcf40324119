# SPDX-License-Identifier: MIT
"""What is asked of Waldur and reported to it: a client, and one module per area of its REST API."""
