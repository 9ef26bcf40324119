# SPDX-License-Identifier: MIT
"""Before anybody leaves, Waldur is asked once more: the cluster was read after it, and somebody may have joined
in between. Asked by each resource's own team, so that a fault of the bulk listing removes nobody either.
"""

from __future__ import annotations

from agent.core.names import fold
from agent.plan import membership
from agent.run.membership import facts as membership_facts
from agent.run.membership.facts import MembershipFacts
from agent.run.membership.planning import PlannedSync
from agent.run.site import Site


def facts_of_leavers(site: Site, facts: MembershipFacts, planned: PlannedSync) -> MembershipFacts | None:
    """The facts with those read again that decide who leaves; None where nobody does. Raises WaldurError."""
    accounts = membership.leaving_accounts(planned.plans)
    concerned = [r for r in facts.resources if fold(r.backend_id) in accounts]
    if not concerned:
        return None
    return membership_facts.people_again(site, facts, concerned)
