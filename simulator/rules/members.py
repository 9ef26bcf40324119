# SPDX-License-Identifier: MIT
"""Who belongs to a project: roles come and go, and accounts at the offerings follow."""

from __future__ import annotations

from datetime import datetime

from simulator.rules import offering_user_rules
from simulator.world.records import Grant, Project, ResourceState, User
from simulator.world.store import Store

_LIVE = (ResourceState.OK, ResourceState.UPDATING, ResourceState.ERRED)


def add(
    store: Store, project: Project, user: User, *, role: str, expiration_time: datetime | None = None
) -> Grant:
    """Grant the role and give the user an account at each offering the project uses."""
    staff = next((u for u in store.users if u.is_staff), None)
    grant = store.grants.add(
        Grant(
            uuid=store.uuids.new(),
            user_uuid=user.uuid,
            role=role,
            scope_type="project",
            scope_uuid=project.uuid,
            created=store.clock.now(),
            expiration_time=expiration_time,
            created_by_uuid=staff.uuid if staff else None,
        )
    )
    for resource in store.resources.where("project", project.uuid):
        if resource.state in _LIVE:
            offering_user_rules.ensure(store, store.offering_of(resource), user)
    return grant


def remove(store: Store, project: Project, user: User, *, role: str | None = None) -> int:
    """Take the role (or every role) away; the account at the offering stays. How many grants went."""
    gone = [
        grant
        for grant in store.grants.where("scope", project.uuid)
        if grant.user_uuid == user.uuid and role in (None, grant.role)
    ]
    for grant in gone:
        store.grants.remove(grant)
    return len(gone)
