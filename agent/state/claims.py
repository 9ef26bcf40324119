# SPDX-License-Identifier: MIT
"""Which accounts each offering of this host names: two that name the same one must not undo each other's members.

Every pass over everything leaves its list in `state_dir`; the others on the same cluster read it. Until all
offerings of the configuration have left one nobody is removed. An offering that is gone from the configuration
is forgotten after a day.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from agent.run.site import Site
from agent.state import json_files as state_files

VALID_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Foreign:
    """`accounts` that other offerings name, with the name of one of these each; `silent`: a neighbour that has not
    told yet which accounts it names, empty when all have.
    """

    accounts: Mapping[str, str]
    silent: str = ""


def leave(site: Site, named: Set[str]) -> None:
    """Tell the other offerings which accounts this one names: all of them, not those of one resource."""
    document = {"offering": site.offering.name, "accounts": sorted(named)}
    state_files.write_json(site.state_dir, _folder(site) / f"{site.offering.uuid}.json", document)


def of_others(site: Site) -> Foreign:
    """What the other offerings on this cluster have told. Writes nothing."""
    found: dict[str, str] = {}
    heard = set()
    for path, document in state_files.documents(_folder(site)):
        accounts, uuid = document.get("accounts"), path.stem
        if uuid == site.offering.uuid or not isinstance(accounts, list):
            continue
        if uuid in site.neighbours or _is_fresh(path):
            heard.add(uuid)
            found |= dict.fromkeys(map(str, accounts), f"offering {document.get('offering')}")
    silent = sorted(name for uuid, name in site.neighbours.items() if uuid not in heard)
    return Foreign(found, silent[0] if silent else "")


def _folder(site: Site) -> Path:
    return site.state_dir / "accounts-named" / re.sub(r"[^A-Za-z0-9_.-]", "_", site.backend.cluster)


def _is_fresh(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < VALID_S
    except OSError:
        return False
