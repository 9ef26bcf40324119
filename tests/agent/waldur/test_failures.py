# SPDX-License-Identifier: MIT
"""Every failure is one of our errors: method, path, status, Waldur's own words, and what to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent.config.secret import Secret
from agent.core.bounded_json import TOO_DEEP
from agent.core.errors import WaldurAnswerError, WaldurError, WaldurLacks
from agent.http import answers
from agent.waldur import offerings, orders, resources
from agent.waldur.client import WaldurClient
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import client_at, client_of
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, html, says

UNKNOWN = "0" * 31 + "1"
PATH = "marketplace-plans/1/"


def order_of(waldur: SimulatedWaldur) -> str:
    return waldur.place_create_order(waldur.seed.project_uuids[0], "One", limits={"cpu": 1})


def failure(call: Callable[[], Any]) -> WaldurError:
    with pytest.raises(WaldurError) as caught:
        call()
    return caught.value


def test_wrong_token(waldur: SimulatedWaldur) -> None:
    error = failure(lambda: orders.actionable(client_of(waldur, token=Secret("wrong"))))
    assert (error.method, error.path, error.status) == ("GET", "marketplace-orders/", 401)
    assert error.detail == "Invalid token."
    assert error.denied
    assert not error.retryable
    assert str(error) == (
        "GET marketplace-orders/: Waldur answered 401: Invalid token. The token is wrong, expired, or its user "
        "inactive: check waldur_api_token"
    )


def test_a_right_that_is_lacking(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    uuid = order_of(waldur)
    waldur.people.deny("agent", "ORDER.APPROVE")
    error = failure(lambda: orders.approve(client, uuid))
    path = f"marketplace-orders/{uuid}/approve_by_provider/"
    assert (error.method, error.path, error.status, error.denied) == ("POST", path, 403, True)
    assert (
        "You do not have permission to perform this action. The token's user lacks the right ORDER.APPROVE"
        in str(error)
    )


def test_an_object_that_is_not_there(client: WaldurClient) -> None:
    error = failure(lambda: resources.get(client, UNKNOWN))
    assert error.status == 404
    assert error.detail == "No Resource matches the given query."
    assert not isinstance(error, WaldurLacks)


def test_an_endpoint_that_is_not_there(client: WaldurClient) -> None:
    error = failure(lambda: client.get("marketplace-unheard-of/"))
    assert isinstance(error, WaldurLacks)
    assert error.detail == "Not Found"


def test_a_refusal_of_any_depth_has_a_text() -> None:
    """What is too deep is named so; where its JSON cannot be read, the beginning of the page is the text."""
    for depth in range(700, 1000):
        body = b'{"a":' * depth + b'"why"' + b"}" * depth
        refusal = answers.Answer(400, "Bad Request", {}, body, None, str)
        assert refusal.detail().startswith((f"a: {TOO_DEEP}", '{"a":'))


def test_an_offering_that_is_not_there_says_what_to_check(waldur: SimulatedWaldur) -> None:
    error = failure(lambda: offerings.facts(client_of(waldur, offering_uuid=UNKNOWN)))
    assert error.status == 404
    assert "No Offering matches the given query. Check waldur_offering_uuid" in str(error)


def test_a_state_that_does_not_fit(waldur: SimulatedWaldur, client: WaldurClient) -> None:
    uuid = order_of(waldur)
    error = failure(lambda: orders.complete(client, uuid))
    assert (error.status, error.retryable) == (409, False)
    assert error.detail.startswith("Allowed states")
    assert error.detail in str(error)


def test_a_body_that_is_refused(client: WaldurClient) -> None:
    error = failure(
        lambda: offerings.create_component(client, {"type": "x", "name": "x", "billing_type": "y"})
    )
    assert error.status == 400
    assert str(error).endswith("Waldur answered 400: billing_type: Not one of the choices.")


SHAPES = [
    pytest.param(says(["Not so."], 400), "Not so.", id="list"),
    pytest.param(says({"details": "In use."}, 400), "In use.", id="details"),
    pytest.param(says({"non_field_errors": ["A.", "B."]}, 400), "A.; B.", id="non field errors"),
    pytest.param(says({"limits": {"cpu": ["Too many."]}}, 400), "cpu: Too many.", id="nested"),
    pytest.param(says({"usages": [{}, {"amount": ["Digits."]}]}, 400), "amount: Digits.", id="mirrored"),
    pytest.param(says({"detail": None}, 400), "Bad Request", id="null"),
    pytest.param(says("Plain.", 400), "Plain.", id="text"),
    pytest.param(Answer(status=404, body=b"", headers={}), "Not Found", id="nothing"),
    pytest.param(Answer(status=400, body=b"\xff\xfe\xfa", headers={}), "\ufffd\ufffd\ufffd", id="bytes"),
    pytest.param(html("<html><title>502 Bad Gateway</title><body>nginx</body>", 502), "502 Bad Gateway", id="page"),
    pytest.param(
        html("<style>p {color: red}</style><p>Be&nbsp;back <b>soon</b></p><script>x()</script>", 503),
        "Be&nbsp;back soon",
        id="page without a title",
    ),
    pytest.param(Answer(status=500, body=b"Traceback ...", headers={}), "Traceback ...", id="plain text"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "detail"), SHAPES)
def test_waldurs_own_words_in_every_shape(stand_in: StartStandIn, answer: Answer, detail: str) -> None:
    error = failure(lambda: client_at(stand_in(lambda _: answer).url).get(PATH))
    assert error.detail == detail
    assert f"GET {PATH}: Waldur answered {answer.status}: {detail.rstrip('.')}" in str(error)


@pytest.mark.parametrize("answer", [html("word " * 1_000_000, 500), says(["word " * 1_000_000], 500)])
def test_endless_pages_give_short_errors(stand_in: StartStandIn, answer: Answer) -> None:
    assert len(str(failure(lambda: client_at(stand_in(lambda _: answer).url).get(PATH)))) < 1200


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        *((status, False) for status in (400, 401, 403, 404, 405, 409, 418)),
        *((status, True) for status in (429, 500, 501, 502, 503, 504)),
    ],
)
def test_what_may_work_later(stand_in: StartStandIn, status: int, retryable: bool) -> None:
    error = failure(lambda: client_at(stand_in(lambda _: says({"detail": "No."}, status)).url).get(PATH))
    assert (error.status, error.retryable) == (status, retryable)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_redirects_are_not_followed(stand_in: StartStandIn, status: int, method: str) -> None:
    elsewhere = stand_in(lambda _: says({"caught": True}))
    moved = Answer(status=status, body=b"", headers={"Location": f"{elsewhere.url}?token=of-the-proxy"})
    client = client_at(stand_in(lambda _: moved).url)
    error = failure(lambda: client.get(PATH) if method == "GET" else client.post(PATH))
    assert elsewhere.asked == []
    assert (error.status, error.retryable) == (status, False)
    assert (
        f"It leads to {elsewhere.url}?token=***, and redirects are not followed: check waldur_api_url"
        in str(error)
    )


def test_the_api_address_without_its_end(waldur: SimulatedWaldur) -> None:
    error = failure(lambda: orders.actionable(client_at(f"{waldur.root_url}/")))
    assert "The server knows no such address: is waldur_api_url right, ending in /api/?" in str(error)


def test_a_log_in_page_instead_of_an_answer(stand_in: StartStandIn) -> None:
    page = html("<title>Welcome to the guest network</title>")
    client = client_at(stand_in(lambda _: page).url)
    for call in (lambda: client.get(PATH), lambda: client.post(PATH)):
        error = failure(call)
        assert isinstance(error, WaldurAnswerError)
        assert "'Welcome to the guest network'. Is waldur_api_url the API's address" in str(error)


def test_an_empty_answer_to_a_post_is_a_success(stand_in: StartStandIn) -> None:
    client = client_at(stand_in(lambda _: Answer(body=b" \n", status=201)).url)
    assert client.post(PATH) is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/api/", "Connection refused"),
        ("http://no.such.host.invalid/api/", "Failed to resolve 'no.such.host.invalid'"),
        ("http://a..b/api/", "no answer from http://a..b/api/"),
        (f"http://{'a' * 70}.invalid/api/", "no answer from"),
        ("http://user:hidden@127.0.0.1:1/api/", "no answer from http://user:***@127.0.0.1:1/api/"),
    ],
)
def test_no_server_there(url: str, words: str) -> None:
    for call in ("get", "post"):
        error = failure(lambda call=call: getattr(client_at(url), call)(PATH))
        assert (error.status, error.retryable, error.path) == (None, True, PATH)
        assert words in str(error)
        assert "hidden" not in str(error)
        assert "object at 0x" not in str(error)
