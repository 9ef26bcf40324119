# SPDX-License-Identifier: MIT
"""Whether a server has no service and course accounts, or a gateway only mislays their listings: who is in them leaves
the accounts where they are believed to be gone.

What each answer was is remembered, so that a fresh process knows it. A listing that was there once is never
lacking; one that was never seen lacks only when two answers more than an hour apart say so.
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
    offering, url, now = site.offering.uuid, site.client.url, datetime.now(UTC)
    before = listings.known(site.state_dir, offering, url)
    after = {name: _judged(before.get(name), is_there, now) for name, is_there in answers.items()}
    if after != before:
        listings.write(site.state_dir, offering, url, after)
    doubtful = []
    for name, is_there in answers.items():
        since = after[name].lacking_since
        if is_there:
            continue
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
    return doubtful


def _judged(known: Listing | None, is_there: bool, now: datetime) -> Listing:
    if is_there or known == Listing():
        return Listing()
    since = known.lacking_since if known else None
    # A clock that was put back has told nothing. Stored to the millisecond.
    kept = since if since and since <= now else now
    return Listing(kept.replace(microsecond=kept.microsecond // 1000 * 1000))
