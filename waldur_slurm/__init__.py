# SPDX-License-Identifier: MIT
"""The name of the oldest service's package: `python3 -m waldur_slurm.main` of its units and containers goes on."""
