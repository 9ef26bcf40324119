# SPDX-License-Identifier: MIT
"""SLURM: what is said to it, what is read from it, and the dangers of the real one."""
