# SPDX-License-Identifier: MIT
"""The only code that speaks HTTP: a client, and one module per area of Waldur's REST API."""
