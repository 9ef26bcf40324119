# SPDX-License-Identifier: MIT
"""Notes that a site agent is alive, from its User-Agent and the offering it asks about.

A status that was not renewed for an hour reads Disconnected.
"""

from __future__ import annotations

from datetime import timedelta

from simulator.rules import access
from simulator.server.routes import Call
from simulator.world.agent_records import IntegrationStatus
from simulator.world.identifiers import as_uuid
from simulator.world.store import Store

_AGENT_MARK = "waldur-site-agent"
_SILENCE = timedelta(hours=1)


def note_request(call: Call, *agent_types: str) -> None:
    offering_uuid = as_uuid(call.query.get("offering_uuid", [""])[-1])
    offering = call.store.offerings.get(offering_uuid)
    if _AGENT_MARK not in call.user_agent or offering is None:
        return
    if not access.may(call.store, call.user, "OFFERING.UPDATE", access.customer_scope(offering)):
        return
    more = ("Event processing",) if call.age.is_modern else ()
    for agent_type in (*agent_types, *more):
        _touch(call.store, offering.uuid, agent_type)


def status_word(store: Store, row: IntegrationStatus) -> str:
    is_silent = store.clock.now() - row.last_request_timestamp > _SILENCE
    return "Disconnected" if is_silent else "Active"


def _touch(store: Store, offering_uuid: str, agent_type: str) -> None:
    now = store.clock.now()
    for row in store.statuses.where("offering", offering_uuid):
        if row.agent_type == agent_type:
            row.last_request_timestamp = now
            return
    store.statuses.add(
        IntegrationStatus(
            uuid=store.uuids.new(),
            offering_uuid=offering_uuid,
            agent_type=agent_type,
            last_request_timestamp=now,
        )
    )
