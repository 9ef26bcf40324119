# SPDX-License-Identifier: MIT
"""Usage of past months."""
