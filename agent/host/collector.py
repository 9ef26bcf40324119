# SPDX-License-Identifier: MIT
"""Python's collector at the start of a program. What modules make while they are imported stays, but the collector
would look through all of it again and again, and once more at the end: a fifth of a command's start.
"""

from __future__ import annotations

import gc


def rest() -> None:
    """Collect nothing until `begin`; called by what starts a process, before it imports the rest."""
    gc.disable()


def begin() -> None:
    """Collect from now on, and only what comes from now on. Does nothing in a process that has never had it rest."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
