# SPDX-License-Identifier: MIT
"""Read service and course accounts, and decide whether a server has no such listings or a gateway only mislays them:
who is in them leaves the accounts where the listings are believed to be gone.

Each answer is remembered, so that a fresh process knows it. A listing that was there once is never lacking; one that
was never seen lacks only when two answers more than an hour apart say so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agent.core.errors import WaldurError
from agent.core.members import ProjectAccounts
from agent.run.site import Site
from agent.state import listings
from agent.state.listings import Listing
from agent.state.store import stamp
from agent.waldur import members, teams

log = logging.getLogger(__name__)

AGREED_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ListedAccounts:
    """Service and course accounts by project uuid; None while it is unknown whether there are any, and why."""

    by_project: Mapping[str, ProjectAccounts] | None
    unknown: str = ""


def read(site: Site) -> ListedAccounts:
    """Return the service and course accounts of all projects."""
    try:
        accounts = teams.accounts_of_projects(site.client)
    except WaldurError as error:
        log.warning(
            "service and course accounts could not be read, so nobody is removed in this pass: %s", error
        )
        return ListedAccounts(None, f"service and course accounts could not be read: {error}")
    if unknown := "; ".join(_doubts(site)):
        return ListedAccounts(None, unknown)
    return ListedAccounts(accounts)


def _doubts(site: Site) -> list[str]:
    """Return why a listing that is not there may be there yet, for each; remember what the server has."""
    offering, url, now = site.offering.uuid, site.client.url, datetime.now(UTC)
    before = listings.known(site.state_dir, offering, url)
    after: dict[str, Listing] = {}
    doubtful: dict[str, str] = {}
    for name in members.ACCOUNT_LISTS:
        known = before.get(name)
        if not site.client.features.lacks(name) or known == Listing():
            after[name] = Listing()
        else:
            since = known.lacking_since if known else None
            # A clock that was put back has told nothing. Stored to the millisecond.
            since = since if since and since <= now else now
            after[name] = Listing(since.replace(microsecond=since.microsecond // 1000 * 1000))
        if not site.client.features.lacks(name):
            continue
        since = after[name].lacking_since
        if since is None:
            doubtful[name] = (
                f"Waldur had {name} once and lacks it now; where it is gone for good: `forget listings --offering "
                f"{offering}`"
            )
            log.warning("%s", doubtful[name])
        elif now - since < AGREED_AFTER:
            doubtful[name] = (
                f"Waldur has no {name}; a gateway may mislay it, so this is believed when an answer after "
                f"{stamp(since + AGREED_AFTER)} says the same"
            )
            if before.get(name) != after[name]:
                log.warning("nobody is removed: %s", doubtful[name])
    if after != before:
        listings.write(site.state_dir, offering, url, after)
    for name in doubtful:
        # Only a new answer confirms the first one.
        site.client.features.forget(name)
    return list(doubtful.values())
