# SPDX-License-Identifier: MIT
"""What a person may do in the console."""

from enum import StrEnum


class Role(StrEnum):
    """VIEWER looks; OPERATOR acts, too."""

    VIEWER = "viewer"
    OPERATOR = "operator"
