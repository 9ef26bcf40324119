# SPDX-License-Identifier: MIT
"""The configuration layer, from files and variables to settings."""
