# SPDX-License-Identifier: MIT
"""Whatever JSON comes, it is read or refused: unknown and missing fields are borne, half a record is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.errors import WaldurAnswerError
from agent.core.model import OrderState, OrderType, ResourceState
from agent.waldur import members, offerings, orders, records, resources
from tests.agent.waldur.clients import client_at
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer

HEX = "e21a0f0030b447deb63bedf69db6742e"
DASHED = "E21A0F00-30B4-47DE-B63B-EDF69DB6742E"
READERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "order": records.order,
    "resource": records.resource,
    "team member": records.team_member,
    "offering user": records.offering_user,
    "offering": lambda record: records.offering(record, HEX),
    "quotas": records.quotas,
}
NAMES = sorted({
    *orders.FIELDS, *resources.FIELDS, *members.USER_FIELDS, *offerings.FIELDS, "quotas",
    "offering_user_username", "offering_user_state",
})  # fmt: skip
WORDS = st.sampled_from(
    [HEX, DASHED, "OK", "Create", "executing", "2027-01-31", "1e999", "{", "urn:uuid:", ""]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | WORDS
PART = st.dictionaries(st.sampled_from(["type", "uuid", "partition_name", "cpu"]), SCALARS, max_size=3)
VALUES = SCALARS | PART | st.lists(PART | SCALARS, max_size=2)
RECORDS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), VALUES, max_size=12)


def read(reader: Callable[[Any], Any], record: dict[str, Any]) -> Any:
    """What was read, or the error that refused it; any other error fails the test."""
    try:
        return reader(record)
    except WaldurAnswerError as error:
        return error


@settings(max_examples=200, deadline=None)
@given(record=RECORDS)
def test_any_object_is_read_or_refused(record: dict[str, Any]) -> None:
    for reader in READERS.values():
        value = read(reader, record)
        assert value is not None
        assert not isinstance(value, WaldurAnswerError) or str(value).startswith("Waldur sent a")
        assert len(str(value)) <= 300 or not isinstance(value, WaldurAnswerError)


@settings(max_examples=50, deadline=None)
@given(more=st.dictionaries(st.text(max_size=6).map("new_{}".format), VALUES, max_size=5))
def test_unknown_fields_change_nothing(more: dict[str, Any]) -> None:
    known = {"uuid": HEX, "state": "OK", "type": "Create", "marketplace_resource_uuid": HEX}
    for reader in READERS.values():
        assert reader({**known, **more}) == reader(known)


@pytest.mark.parametrize(
    ("reader", "record", "words"),
    [
        ("order", {"state": "done"}, "an order with no uuid; it has state"),
        ("order", {}, "an order with no uuid; it has nothing"),
        ("order", {"uuid": HEX, "marketplace_resource_uuid": HEX}, "an order with no state"),
        ("order", {"uuid": HEX, "state": "done"}, "an order with no marketplace_resource_uuid"),
        ("resource", {"uuid": "seven", "state": "OK"}, "a resource with a uuid that is no uuid: 'seven'"),
        ("resource", {"uuid": HEX, "state": None}, "a resource with no state"),
        ("team member", {"username": "x"}, "a team member with no uuid"),
        ("offering", {"components": [{"name": "CPU"}]}, "a component with no type"),
        ("offering", {"components": "cpu"}, "an offering with components that are not a list of objects"),
        ("offering", {"partitions": [1]}, "an offering with partitions that are not a list of objects"),
        ("quotas", {"quotas": {"cpu": "much"}}, "a plan with quotas that are no numbers"),
    ],
)
def test_what_nothing_can_be_done_without_is_named(reader: str, record: dict[str, Any], words: str) -> None:
    with pytest.raises(WaldurAnswerError) as caught:
        READERS[reader](record)
    assert words in str(caught.value)
    assert caught.value.retryable


def test_an_order_of_a_newer_server() -> None:
    """Unknown words become UNKNOWN, unknown fields are passed over, optional ones may be null."""
    order = records.order({
        "uuid": HEX, "state": "pending-moon", "type": "Move", "marketplace_resource_uuid": HEX, "limits": None,
        "attributes": None, "created": None, "surprise": {"x": 1},
    })  # fmt: skip
    assert (order.state, order.type) == (OrderState.UNKNOWN, OrderType.UNKNOWN)
    assert (order.limits, order.attributes, order.created) == ({}, {}, None)


@pytest.mark.parametrize(
    ("reader", "field", "attribute"),
    [
        ("order", "uuid", "uuid"), ("order", "marketplace_resource_uuid", "resource_uuid"),
        ("order", "plan_uuid", "plan_uuid"), ("resource", "uuid", "uuid"),
        ("resource", "project_uuid", "project_uuid"), ("team member", "uuid", "user_uuid"),
        ("offering user", "user_uuid", "user_uuid"), ("offering", "customer_uuid", "customer_uuid"),
    ],
)  # fmt: skip
def test_uuids_come_out_in_hex(reader: str, field: str, attribute: str) -> None:
    whole = {"uuid": HEX, "state": "OK", "marketplace_resource_uuid": HEX, field: DASHED}
    assert getattr(READERS[reader](whole), attribute) == HEX


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-21T02:00:00.123456Z", datetime(2026, 11, 21, 2, 0, 0, 123456, UTC)),
        ("2026-11-21T02:00+02:00", datetime(2026, 11, 21, tzinfo=UTC)),
        ("2026-11-21T02", datetime(2026, 11, 21, 2, tzinfo=UTC)),
        ("2026-11-21", datetime(2026, 11, 21, tzinfo=UTC)),
        ("yesterday", None),
        ("", None),
        (7, None),
    ],
)
def test_moments(text: Any, moment: datetime | None) -> None:
    read = records.resource({"uuid": HEX, "state": "OK", "end_date": text, "last_sync": text})
    assert read.end_date == read.last_sync == moment


@pytest.mark.parametrize(
    ("quotas", "amounts"),
    [({"cpu": "10.00", "mem": 0, "gpu": None, "disk": 2.5}, {"cpu": 10, "disk": 2}), (None, {}), ([], {})],
)
def test_quotas(quotas: Any, amounts: dict[str, int]) -> None:
    assert records.quotas({"quotas": quotas}) == amounts


def test_states_of_resources_are_words_of_ours() -> None:
    assert records.resource({"uuid": HEX, "state": "Erred"}).state is ResourceState.ERRED
    assert records.resource({"uuid": HEX, "state": "Sleeping"}).state is ResourceState.UNKNOWN


def test_an_offerings_qos_by_partition() -> None:
    """8.1 has a catalogue and, for each partition, those it takes; before it one word for a partition."""
    facts = records.offering(
        {
            "qos_profiles": [{"name": "long"}, {"name": "fast"}],
            "partitions": [
                {"partition_name": "gpu", "qos_options": [{"qos_name": "fast", "is_default": True}]},
                {"partition_name": "cpu", "qos_options": [], "qos": "old"},
            ],
        },
        HEX,
    )
    assert facts.qos == ("fast", "long", "old")
    assert facts.partition_qos == {"gpu": ("fast",)}
    assert records.offering({"partitions": None}, HEX).qos == ()


ODD = (
    rb'[{"uuid": "a", "name": "half \ud800 letter", "whole": "\ud83d\ude00", "\ud800": 1, "raw": "'
    b'\xed\xa0\x80 \xff", "many": '
    + b"9" * 5000
    + b', "endless": 1e400, "none": NaN, "minus": -Infinity, "usual": [7, 1.5, -3]}]'
)


def test_one_odd_value_spoils_no_other(stand_in: StartStandIn) -> None:
    """Half a letter can be written nowhere, and numbers without end are none: the rest of the listing is read."""
    server = stand_in(lambda _: Answer(body=ODD))
    (item,) = client_at(server.url).pages("list/")
    assert item["name"] == "half \ufffd letter"
    assert item["whole"] == "\U0001f600"
    assert "\ufffd" in item["raw"]
    assert item["\ufffd"] == 1
    assert item["many"] == "9" * 5000
    assert (item["endless"], item["none"], item["minus"]) == ("1e400", "NaN", "-Infinity")
    assert item["usual"] == [7, 1.5, -3]


@pytest.mark.parametrize("escaped", [rb"\ud83d\ude00", rb"\ud800", rb"\\\ud800", rb"\\ud800"])
def test_half_a_letter_makes_no_answer_too_deep(stand_in: StartStandIn, escaped: bytes) -> None:
    deep = b'{"a":' * 600 + b"1" + b"}" * 600
    body = b'[{"uuid": "a", "name": "' + escaped + b'", "attributes": ' + deep + b"}]"
    server = stand_in(lambda _: Answer(body=body))
    (item,) = client_at(server.url).pages("list/")
    shown = {
        rb"\ud83d\ude00": "\U0001f600",
        rb"\ud800": "\ufffd",
        rb"\\\ud800": "\\\ufffd",
        rb"\\ud800": r"\ud800",
    }
    assert item["name"] == shown[escaped]


def test_limits_that_are_no_single_values_are_their_text() -> None:
    limits = {"zz": [], "cpu": {"a": 1}, "mem": 5, "gpu": None}
    record = {"uuid": HEX, "state": "OK", "limits": limits}
    assert records.resource(record).limits == {"zz": "[]", "cpu": '{"a": 1}', "mem": 5, "gpu": None}
