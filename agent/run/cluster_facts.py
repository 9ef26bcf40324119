# SPDX-License-Identifier: MIT
"""Read of the cluster what several modes need: whether it has lost the offering's accounts, and what is used of limits.

Passes over orders, and those over members that an event named, do not read all of the offering's resources: they
look whether its accounts are there. A pass over all members sees it by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from agent.core.account_names import fold
from agent.core.errors import BackendError
from agent.core.model import ResourceState, Snapshot
from agent.plan import lost
from agent.run.site import Site
from agent.state import ledger
from agent.waldur import resources
from backends.base import Scope

log = logging.getLogger(__name__)

# States of resources whose account should exist; that of an erred one may never have been made, and that of one which
# an order ends may be gone before Waldur has heard of it.
WITH_ACCOUNT = (ResourceState.OK, ResourceState.UPDATING)


def require_accounts(site: Site, snapshot: Snapshot, needed: Set[str] = frozenset()) -> None:
    """Raise AccountsLost where so many of the offering's accounts are missing that nothing should be carried out.

    Waldur is asked which accounts it names only where one of those `needed` is missing, or too many of those that were
    known when all members were last read. Raises WaldurError.
    """
    known = ledger.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    if needed <= set(snapshot.accounts) and not lost.lost(known, snapshot, alone=True):
        return
    listed = resources.listed(site.client, WITH_ACCOUNT, fields=("uuid", "state", "backend_id"))
    found = {fold(resource.backend_id) for resource in listed if resource.backend_id}
    lost.require_accounts(found, snapshot)


def with_used_limits(site: Site, snapshot: Snapshot, accounts: frozenset[str]) -> Snapshot:
    """Return the snapshot with the used amounts of the accounts' limits; unknown where they cannot be read."""
    try:
        return snapshot.with_usage(site.backend.observe(Scope(parts=frozenset(), usage_of=accounts)))
    except BackendError as error:
        log.warning("what accounts have used of their limits cannot be read: %s", error)
        return snapshot
