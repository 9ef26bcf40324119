# SPDX-License-Identifier: MIT
"""From Waldur's JSON to our values: unknown fields are passed over, optional ones may be missing or null.

Only what nothing can be done without (a uuid, a state) is required; WaldurAnswerError names it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import chain
from sys import intern
from typing import Any

from agent.core.account_names import uuid_hex
from agent.core.errors import WaldurAnswerError
from agent.core.model import (
    OfferingFacts,
    OfferingUser,
    Order,
    OrderState,
    OrderType,
    PosixAccount,
    Resource,
    ResourceState,
    TeamMember,
    WaldurComponent,
)

Json = Mapping[str, Any]

# How Waldur says that nothing is awaited of an account that is OK (8.1).
IN_USE = ("Active", "OK")

OPTIONS_AMONG_SECRETS = ("service_provider_can_create_offering_user",)


def order(record: Json) -> Order:
    return Order(
        uuid=uuid(record, "an order"),
        type=OrderType(_text(record, "type")),
        state=OrderState(_required(record, "state", "an order")),
        resource_uuid=uuid(record, "an order", "marketplace_resource_uuid"),
        resource_name=_text(record, "resource_name"),
        project_slug=_text(record, "project_slug"),
        plan_uuid=hex_text(record, "plan_uuid"),
        limits=_limits(record),
        attributes=_map(record, "attributes"),
        created=moment(record, "created"),
        error_message=_text(record, "error_message"),
    )


def resource(record: Json, before: Resource | None = None) -> Resource:
    """Return a resource. What it has in common with the one `before` it in a listing is kept once."""
    options = _map(record, "offering_plugin_options")
    if before is not None and before.plugin_options == options:
        options = before.plugin_options
    return Resource(
        uuid=uuid(record, "a resource"),
        name=_text(record, "name"),
        slug=_text(record, "slug"),
        state=ResourceState(_required(record, "state", "a resource")),
        backend_id=_text(record, "backend_id"),
        project_uuid=intern(hex_text(record, "project_uuid")),
        project_slug=_slug(record, "project"),
        project_name=_text(record, "project_name"),
        customer_uuid=intern(hex_text(record, "customer_uuid")),
        customer_slug=intern(_slug(record, "customer")),
        customer_name=intern(_text(record, "customer_name")),
        limits=_limits(record),
        spending_limits=_map(record, "spending_limits"),
        attributes=_map(record, "attributes"),
        plugin_options=options,
        backend_metadata=_map(record, "backend_metadata"),
        paused=bool(record.get("paused")),
        downscaled=bool(record.get("downscaled")),
        restrict_member_access=bool(record.get("restrict_member_access")),
        has_allocation=record.get("resource_type") == "SLURM.Allocation",
        error_message=_text(record, "error_message"),
        last_sync=moment(record, "last_sync"),
        created=moment(record, "created"),
        end_date=moment(record, "end_date"),
        offering_uuid=intern(hex_text(record, "offering_uuid")),
        has_api_keys=record.get("has_api_keys") is True,
    )


def team_member(record: Json) -> TeamMember:
    return TeamMember(
        user_uuid=uuid(record, "a team member"),
        username=_text(record, "offering_user_username"),
        offering_user_state=intern(_text(record, "offering_user_state")),
        role=intern(_text(record, "role")),
    )


def offering_user(record: Json) -> OfferingUser:
    first, _, last = _text(record, "user_full_name").strip().rpartition(" ")
    return OfferingUser(
        uuid=hex_text(record, "uuid"),
        user_uuid=intern(hex_text(record, "user_uuid")),
        # The cluster's associations have the same name, and the listing of roles the same person.
        username=intern(_text(record, "username")),
        state=intern(_text(record, "state")),
        is_restricted=bool(record.get("is_restricted")),
        waldur_username=_text(record, "user_username"),
        first_name=_text(record, "user_first_name") or first,
        last_name=_text(record, "user_last_name") or last,
        email=_text(record, "user_email"),
        runtime_state="" if (now := _text(record, "runtime_state")) in IN_USE else now,
        posix=_posix(record),
    )


def _posix(record: Json) -> PosixAccount | None:
    """Return the numbers of an account on hosts; None where the server shows none at all (before 8.1)."""
    if not {"uidnumber", "primarygroup"} & record.keys():
        return None
    uid, gid = record.get("uidnumber"), record.get("primarygroup")
    return PosixAccount(
        uid if isinstance(uid, int) else None,
        gid if isinstance(gid, int) else None,
        _text(record, "home_directory"),
        _text(record, "login_shell"),
    )


def offering(record: Json, offering_uuid: str) -> OfferingFacts:
    partitions = _maps(record, "partitions", "an offering")
    # Its catalogue, and for each partition those it takes, none for all of them; before 8.1 one word for a partition.
    partition_qos = {
        _text(item, "partition_name"): _names(_maps(item, "qos_options", "a partition"), "qos_name")
        for item in partitions
    }
    catalogue = _names(_maps(record, "qos_profiles", "an offering"), "name")
    return OfferingFacts(
        uuid=offering_uuid,
        name=_text(record, "name"),
        state=_text(record, "state"),
        backend_id=_text(record, "backend_id"),
        customer_uuid=hex_text(record, "customer_uuid"),
        customer_name=_text(record, "customer_name"),
        components=tuple(
            WaldurComponent(
                uuid=_text(item, "uuid"), type=_required(item, "type", "a component"), fields=dict(item)
            )
            for item in _maps(record, "components", "an offering")
        ),
        partitions=_names(partitions, "partition_name"),
        qos=tuple(sorted({*catalogue, *_names(partitions, "qos"), *chain(*partition_qos.values())})),
        partition_qos={name: taken for name, taken in partition_qos.items() if taken},
        plugin_options={**_moved_options(record), **_map(record, "plugin_options")},
    )


def _names(items: list[Json], key: str) -> tuple[str, ...]:
    return tuple(sorted({_text(item, key) for item in items} - {""}))


def _moved_options(record: Json) -> Json:
    """Return the options that servers of 2024 keep along with the secrets (5.8.4), and nothing else from there."""
    secret = _map(record, "secret_options")
    return {name: secret[name] for name in OPTIONS_AMONG_SECRETS if name in secret}


def quotas(record: Json) -> dict[str, int]:
    """Return the amounts of a plan's components, without zeros. Raises WaldurAnswerError."""
    try:
        amounts = {name: float(amount or 0) for name, amount in _map(record, "quotas").items()}
        return {name: int(amount) for name, amount in amounts.items() if amount}
    except (TypeError, ValueError, OverflowError) as error:
        raise _unusable("a plan", f"quotas that are no numbers: {error}") from error


def uuid(record: Json, what: str, key: str = "uuid") -> str:
    text = _required(record, key, what)
    try:
        return uuid_hex(text)
    except ValueError as error:
        raise _unusable(what, f"a {key} that is no uuid: {text[:80]!r}") from error


def last_part(url: object) -> str:
    """Return the uuid at the end of an object's address."""
    return str(url or "").rstrip("/").rpartition("/")[2]


def of_offering(record: Json, offering_uuid: str) -> Json:
    """Return a record of this offering. Raises WaldurAnswerError where it says that it is another one's: a token that
    sees several offerings, and a filter that a server or a cache in front of it does not heed.
    """
    said = hex_text(record, "offering_uuid")
    if said and offering_uuid and said != offering_uuid:
        raise _unusable(
            "an answer", f"{record.get('uuid')} of offering {said}, and {offering_uuid} was asked for"
        )
    return record


def hex_text(record: Json, key: str) -> str:
    """Return a uuid that need not be there, in hex so that it compares; whatever else it is stays as it came."""
    text = _text(record, key)
    try:
        return uuid_hex(text)
    except ValueError:
        return text


def _slug(record: Json, owner: str) -> str:
    """The slug of a project or customer. Servers of 2024 have none: agents of that time used the uuid."""
    key = f"{owner}_slug"
    return _text(record, key) if key in record else _text(record, f"{owner}_uuid")


def _required(record: Json, key: str, what: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise _unusable(what, f"no {key}; it has {', '.join(map(str, record)) or 'nothing'}")
    return value


def _unusable(what: str, problem: str) -> WaldurAnswerError:
    return WaldurAnswerError(f"Waldur sent {what} with {problem}"[:300], method="GET", path="")


def _text(record: Json, key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _map(record: Json, key: str) -> Json:
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}


def _limits(record: Json) -> Json:
    """Limits as they came, judged where they are used; what is no single value as its text, so that it compares."""
    values = _map(record, "limits").items()
    return {name: json.dumps(each) if isinstance(each, list | dict) else each for name, each in values}


def _maps(record: Json, key: str, what: str) -> list[Json]:
    """A list of objects, empty where it is missing or null; a part of it is never returned as the whole."""
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise _unusable(what, f"{key} that are not a list of objects")
    return value


def moment(record: Json, key: str) -> datetime | None:
    """Return a moment, or that at which a date begins (`2027-01-31`); None where it is missing or no date.

    One without a time zone, which Waldur does not send, is taken as UTC.
    """
    value = record.get(key)
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
