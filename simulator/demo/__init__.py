# SPDX-License-Identifier: MIT
"""The demo: the whole system on embedded parts, with orders that travel from Waldur to accounts."""
