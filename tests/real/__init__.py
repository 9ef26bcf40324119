# SPDX-License-Identifier: MIT
"""Real services for tests: SLURM with its database, and Redis, started in folders of their own.

Needs the distribution's packages; a test that lacks one is skipped (see `parts`).
"""
