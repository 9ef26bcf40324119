# SPDX-License-Identifier: MIT
"""Look whether the cluster has lost the offering's accounts, for passes that do not read all of its resources: those
over orders, and those over members of which an event told. A pass over all members sees it by itself.
"""

from __future__ import annotations

from collections.abc import Set

from agent.core.account_names import fold
from agent.core.model import ResourceState, Snapshot
from agent.plan import rebuild
from agent.run.site import Site
from agent.state import ledger
from agent.waldur import resources

# States of resources whose account should exist; that of an erred one may never have been made, and that of one which
# an order ends may be gone before Waldur has heard of it.
WITH_ACCOUNT = (ResourceState.OK, ResourceState.UPDATING)


def require_accounts(site: Site, snapshot: Snapshot, needed: Set[str] = frozenset()) -> None:
    """Raise AccountsLost where so many of the offering's accounts are missing that nothing should be carried out.

    Waldur is asked which accounts it names only where one of those `needed` is missing, or too many of those that were
    known when all members were last read. Raises WaldurError.
    """
    known = ledger.of_offering(site.state_dir, site.backend.cluster, site.offering.uuid)
    if needed <= set(snapshot.accounts) and not rebuild.lost(known, snapshot, alone=True):
        return
    listed = resources.listed(site.client, WITH_ACCOUNT, fields=("uuid", "state", "backend_id"))
    found = {fold(resource.backend_id) for resource in listed if resource.backend_id}
    rebuild.require_accounts(found, snapshot)
