# SPDX-License-Identifier: MIT
"""The object behind a resource in 2024: its integer states, and how an update fails when it is not ready.

Later servers have no such object; nothing here is called for them.
"""

from __future__ import annotations

from simulator.rules.errors import bad_request, detail
from simulator.world.records import Allocation, Resource
from simulator.world.store import Store

CREATION_SCHEDULED, CREATING = 5, 6
UPDATE_SCHEDULED, UPDATING = 1, 2
DELETION_SCHEDULED, DELETING = 7, 8
OK, ERRED = 3, 4

STATE_NAMES = {
    CREATION_SCHEDULED: "Creation Scheduled",
    CREATING: "Creating",
    UPDATE_SCHEDULED: "Update Scheduled",
    UPDATING: "Updating",
    DELETION_SCHEDULED: "Deletion Scheduled",
    DELETING: "Deleting",
    OK: "OK",
    ERRED: "Erred",
}

# state word -> (target, states it may be entered from; None: any)
_MOVES: dict[str, tuple[int, frozenset[int] | None]] = {
    "creating": (CREATING, frozenset({CREATION_SCHEDULED})),
    "updating": (UPDATING, frozenset({UPDATE_SCHEDULED})),
    "deleting": (DELETING, frozenset({DELETION_SCHEDULED})),
    "ok": (OK, None),
    "erred": (ERRED, None),
}


def make(store: Store, resource: Resource) -> Allocation:
    resource.allocation = Allocation(
        uuid=store.uuids.new(), created=store.clock.now(), state=CREATION_SCHEDULED
    )
    return resource.allocation


def schedule_update(resource: Resource, allocation: Allocation) -> str | None:
    """Return why the allocation cannot be updated now; None when it is scheduled."""
    if allocation.state != OK:
        return f"Can't switch from state '{allocation.state}' using method 'schedule_updating'"
    allocation.state = UPDATE_SCHEDULED
    publish(resource, allocation)
    return None


def publish(resource: Resource, allocation: Allocation) -> None:
    """Write the allocation's state into the resource's metadata, next to the agent's: every save of it does."""
    resource.backend_metadata = resource.backend_metadata | {
        "state": STATE_NAMES[allocation.state],
        "runtime_state": None,
        "action": None,
        "action_details": None,
    }


def move(resource: Resource, allocation: Allocation, word: str) -> None:
    if word not in _MOVES:
        raise bad_request("Invalid state: no such transition")
    target, sources = _MOVES[word]
    if sources is not None and allocation.state not in sources:
        raise detail(409, f"Can't switch from state '{allocation.state}' to {word}")
    allocation.state = target
    publish(resource, allocation)
