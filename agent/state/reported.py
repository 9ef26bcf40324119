# SPDX-License-Identifier: MIT
"""Accounts whose usage two offerings would bill: both name them, on one cluster, and count the same of them.

Every report leaves the accounts that it tells of in `state_dir`; the others look there. Offerings that count different
things of one account (cpu here, GPUs there) do not meet. What another host's agent tells is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from agent.core.model import Resource
from agent.core.names import fold
from agent.run.site import Site
from agent.state import json_files as state_files
from agent.state.json_files import Unreadable


def leave(site: Site, resources: Iterable[Resource]) -> None:
    """Tell the other offerings which accounts this one tells of."""
    if site.counting_alike:
        accounts = sorted({fold(resource.backend_id) for resource in resources if resource.backend_id})
        state_files.write_json(site.state_dir, _path(site, site.offering.uuid), {"accounts": accounts})


def of_others(site: Site) -> Mapping[str, str]:
    """Accounts that other offerings tell of, with the name of one of these each."""
    found: dict[str, str] = {}
    for uuid, name in site.counting_alike.items():
        try:
            document = state_files.read_json(_path(site, uuid)) or {}
        except Unreadable:
            continue
        accounts = document.get("accounts")
        found |= dict.fromkeys(map(str, accounts), name) if isinstance(accounts, list) else {}
    return found


def _path(site: Site, uuid: str) -> Path:
    cluster = re.sub(r"[^A-Za-z0-9_.-]", "_", site.backend.cluster)
    return site.state_dir / "accounts-reported" / cluster / f"{uuid}.json"
