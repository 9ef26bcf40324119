# SPDX-License-Identifier: MIT
"""The tests, in the rooms of the product."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
