# SPDX-License-Identifier: MIT
"""Which accounts each offering of this host names: two that name the same one must not undo each other's members.

Every pass leaves its list in `state_dir`; the others on the same cluster read it. The lists are hints of yesterday
at worst: an offering that is gone from the configuration is forgotten after a day.
"""

from __future__ import annotations

import re
import time
from collections.abc import Set
from pathlib import Path

from agent.run import state_files
from agent.run.sites import Site

VALID_S = 86_400.0


def of_others(site: Site, named: Set[str], *, complete: bool) -> dict[str, str]:
    """Accounts that other offerings on this cluster name, with the name of one of these each.

    `named` is what this offering names; it is left for the others where it is `complete`.
    """
    folder = site.state_dir / "accounts-named" / re.sub(r"[^A-Za-z0-9_.-]", "_", site.backend.cluster)
    if complete:
        document = {"offering": site.offering.name, "accounts": sorted(named)}
        state_files.write_json(site.state_dir, folder / f"{site.offering.uuid}.json", document)
    found: dict[str, str] = {}
    for path, document in state_files.documents(folder):
        accounts = document.get("accounts")
        if path.stem != site.offering.uuid and isinstance(accounts, list) and _is_fresh(path):
            found |= dict.fromkeys(map(str, accounts), f"offering {document.get('offering')}")
    return found


def _is_fresh(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < VALID_S
    except OSError:
        return False
