# SPDX-License-Identifier: MIT
"""SLURM through slurmrestd, for sites that allow no commands on the agent's host."""
