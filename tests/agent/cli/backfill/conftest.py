# SPDX-License-Identifier: MIT
"""An operator's site with history, as the loader's own tests have it."""

from __future__ import annotations

from tests.agent.run.backfill.conftest import operator, with_token

__all__ = ["operator", "with_token"]
