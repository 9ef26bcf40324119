# SPDX-License-Identifier: MIT
"""Usage as one page for a browser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.cli import pages
from agent.cli.usage import sections
from agent.run.usage.view import UsageView


def render(
    views: Sequence[UsageView], failed: Mapping[str, str] | None = None, *, with_users: bool = False
) -> str:
    """Return the page as HTML. `failed`: offerings that could not be read, with the reason."""
    return pages.render(
        "usage",
        offerings=[sections.offering(view, with_users=with_users) for view in views],
        failed=dict(failed or {}),
    )
