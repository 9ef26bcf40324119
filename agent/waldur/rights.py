# SPDX-License-Identifier: MIT
"""Which right of Waldur a call needs: for the operator whose token was refused (403). docs/rights.md lists them.

From the server's permissions, 5.8.4 (October 2024) to 8.1.
"""

from __future__ import annotations

import re

OWNER = "the role of an owner (CUSTOMER.OWNER) of the provider"
# The end of a path, and what it needs; the first that matches counts.
NEEDED: tuple[tuple[str, str], ...] = (
    (r"marketplace-slurm-remote/[^/]+/set_state/", OWNER),
    (r"marketplace-orders/[^/]+/reject_by_provider/", "ORDER.REJECT"),
    (r"marketplace-orders/[^/]+/(approve_by_provider|set_state_\w+)/", "ORDER.APPROVE"),
    (r"/set_backend_id/", "RESOURCE.SET_BACKEND_ID"),
    (r"/(set_backend_metadata|set_endpoints)/", "RESOURCE.SET_BACKEND_METADATA"),
    (r"/(set_usage|set_user_usages?)/", "RESOURCE.SET_USAGE"),
    (r"/submit_report/", "RESOURCE.SUBMIT_REPORT"),
    (r"/(set_limits|set_as_ok|set_as_erred|refresh_last_sync)/", "RESOURCE.SET_STATE"),
    (r"/(create|update|remove)_offering_component/", "OFFERING.UPDATE_COMPONENTS"),
    (r"marketplace-offering-users/", "OFFERING.UPDATE_USER"),
    (r"/project_permissions/", "PROVIDER.LIST_PERMISSIONS"),
    (r"/(import_resource|backend-resource)", "OFFERING.MANAGE_BACKEND_RESOURCES"),
)


def hint(path: str) -> str:
    """Return what the token's user lacks for a call that was refused, and where."""
    right = next((needed for pattern, needed in NEEDED if re.search(pattern, f"/{path}")), "")
    what = right if right == OWNER else f"the right {right}" if right else "a right"
    return (
        f"The token's user lacks {what}: give it a role of the offering's provider that has it "
        "(docs/rights.md lists all that are needed)"
    )
