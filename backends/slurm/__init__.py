# SPDX-License-Identifier: MIT
"""SLURM through sacctmgr, squeue and scancel: read in bulk, write in batches, one writer at a time."""
