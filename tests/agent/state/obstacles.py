# SPDX-License-Identifier: MIT
"""What keeps a state file from being written or read, for root as well: root may write anywhere."""

from __future__ import annotations

from pathlib import Path

from agent.state.store import NAME


def block(state_dir: Path) -> None:
    """Nothing can be written down any more; what is known already can be read. As on a full disk."""
    state_dir.mkdir(exist_ok=True)
    _log(state_dir).mkdir()


def unblock(state_dir: Path) -> None:
    _log(state_dir).rmdir()


def damage(state_dir: Path) -> None:
    """Make what was written down unreadable."""
    state_dir.mkdir(exist_ok=True)
    (state_dir / NAME).write_text("{")


def _log(state_dir: Path) -> Path:
    return state_dir / f"{NAME}-wal"
