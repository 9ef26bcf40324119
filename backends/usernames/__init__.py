# SPDX-License-Identifier: MIT
"""Username backends: where the names of people on the cluster come from."""
