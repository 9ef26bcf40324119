# SPDX-License-Identifier: MIT
"""What the simulated server holds: rows, clock, ages, and ready-made scenarios."""
