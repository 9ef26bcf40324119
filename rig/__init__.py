# SPDX-License-Identifier: MIT
"""Real parts for tests and benchmarks: SLURM, Redis, brokers, slapd, started on loopback in folders of their own.

They need the distribution's packages; a test that lacks one is skipped (see `parts`).
"""
