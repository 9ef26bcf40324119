# SPDX-License-Identifier: MIT
"""Read service and course accounts, and decide whether a server has no such listings or a gateway only mislays them:
who is in them leaves the accounts where the listings are believed to be gone.

Each answer is remembered, so that a fresh process knows it. A listing that was there once is never lacking; one that
was never seen lacks only when two answers more than an hour apart say so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from agent.core.members import ProjectAccounts
from agent.run.site import Site
from agent.state import listings
from agent.state.listings import Listing
from agent.waldur import members, teams

log = logging.getLogger(__name__)

AGREED_AFTER = timedelta(hours=1)


def read(site: Site) -> Mapping[str, ProjectAccounts] | None:
    """Return service and course accounts by project uuid; None while it is unknown whether there are any. Raises
    WaldurError.
    """
    accounts = teams.accounts_of_projects(site.client)
    offering, url, now = site.offering.uuid, site.client.url, datetime.now(UTC)
    before = listings.known(site.state_dir, offering, url)
    after: dict[str, Listing] = {}
    doubtful = []
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
            log.warning(
                "Waldur had %s once and lacks it now; where it is gone for good: `forget listings --offering %s`",
                name,
                offering,
            )
            doubtful.append(name)
        elif now - since < AGREED_AFTER:
            log.info("Waldur lacks %s; nobody is removed until it still does in an hour", name)
            doubtful.append(name)
    if after != before:
        listings.write(site.state_dir, offering, url, after)
    for name in doubtful:
        # Only a new answer confirms the first one.
        site.client.features.forget(name)
    return None if doubtful else accounts
