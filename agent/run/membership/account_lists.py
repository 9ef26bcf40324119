# SPDX-License-Identifier: MIT
"""Whether a server has no service and course accounts, or a gateway only mislays their listings: who is in them leaves
the accounts where they are believed to be gone.

What each answer was is kept in `state_dir`, so that a fresh process knows it. A listing that was there once is never
lacking; one that was never seen lacks only when two answers more than an hour apart say so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.core.people import ProjectAccounts
from agent.run.site import Site
from agent.state import json_files as state_files
from agent.waldur import members, teams

log = logging.getLogger(__name__)

AGREED_AFTER_S = 3600.0
THERE, LACKING_SINCE = "there", "lacking_since"


def read(site: Site) -> Mapping[str, ProjectAccounts] | None:
    """Service and course accounts by project uuid; None while nobody can tell whether there are any. Raises
    WaldurError.
    """
    found = teams.accounts_of_projects(site.client)
    answers = {listing: not site.client.features.lacks(listing) for listing in members.ACCOUNT_LISTS}
    doubtful = _doubtful(site, answers)
    for listing in doubtful:
        # Only a new answer is a second opinion.
        site.client.features.forget(listing)
    return None if doubtful else found


def _doubtful(site: Site, answers: Mapping[str, bool]) -> list[str]:
    """The listings that lacked, and that may be there all the same."""
    path = site.state_dir / "waldur-lists" / f"{site.offering.uuid}.json"
    before = _known(path, site.client.url)
    now_s = time.time()
    after = {listing: _judged(before.get(listing), is_there, now_s) for listing, is_there in answers.items()}
    if after != before:
        state_files.write_json(site.state_dir, path, {"url": site.client.url, "listings": after})
    doubtful = []
    for listing, is_there in answers.items():
        known = after[listing]
        if is_there:
            continue
        if known.get(THERE):
            log.warning(
                "Waldur had %s once and lacks it now; where it is gone for good, remove %s", listing, path
            )
            doubtful.append(listing)
        elif now_s - known[LACKING_SINCE] < AGREED_AFTER_S:
            log.info("Waldur lacks %s; nobody is removed until it still does in an hour", listing)
            doubtful.append(listing)
    return doubtful


def _judged(known: Mapping[str, Any] | None, is_there: bool, now_s: float) -> dict[str, Any]:
    if is_there or (known and known.get(THERE)):
        return {THERE: True}
    since_s = known.get(LACKING_SINCE) if known else None
    # A clock that was put back has told nothing.
    return {LACKING_SINCE: since_s if isinstance(since_s, int | float) and since_s <= now_s else now_s}


def _known(path: Path, url: str) -> dict[str, dict[str, Any]]:
    """What was seen of this server before; nothing where the file is damaged or about another one."""
    try:
        document = state_files.read_json(path) or {}
    except state_files.Unreadable as error:
        log.warning("%s", error)
        return {}
    listings = document.get("listings")
    if document.get("url") != url or not isinstance(listings, dict):
        return {}
    return {name: known for name, known in listings.items() if isinstance(known, dict)}
