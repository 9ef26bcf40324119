# SPDX-License-Identifier: MIT
"""The MOAB backend on stand-ins for its programs."""
