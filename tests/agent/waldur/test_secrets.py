# SPDX-License-Identifier: MIT
"""No secret leaves for anywhere but its owner: not into errors, their causes, log lines or what objects print."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from agent.config.secret import Secret
from agent.core.errors import ConfigError, SiteAgentError
from agent.http.client import Timeouts
from agent.observability import logs
from agent.waldur.client import WaldurClient
from tests.agent.waldur.clients import TOKEN, client_at, oidc
from tests.agent.waldur.conftest import StartStandIn
from tests.agent.waldur.stand_in import Answer, Asked, StandIn, html, says

OIDC_SECRET = "the-client-secret-of-oidc"
ACCESS_TOKEN = "eyJhbGciOiJub25lIn0.access.token"
PROXY_PASSWORD = "pr0xy-pass"
HIDDEN = (TOKEN, OIDC_SECRET, ACCESS_TOKEN, PROXY_PASSWORD, TOKEN[:20], OIDC_SECRET[:15], ACCESS_TOKEN[:20])


def echo(status: int) -> Callable[[Asked], Answer]:
    """A server that shows the request in its answer, as debug pages do."""

    def script(asked: Asked) -> Answer:
        echoed = f"{asked.headers} {asked.body.decode()}"
        return html(f"<h1>{'x' * 120}</h1>{echoed}", status)

    return script


def echo_in_json(asked: Asked) -> Answer:
    return says({"detail": f"{'x' * 960} {asked.headers['Authorization']}"}, 400)


SCRIPTS: dict[str, Callable[[Asked], Answer]] = {
    "401": lambda _: says({"detail": "Invalid token."}, 401),
    "an error page that shows the request": echo(500),
    "a page of success that shows the request": echo(200),
    "an error in JSON that shows the token at the cut": echo_in_json,
    "a redirect that shows the token": lambda asked: Answer(
        status=302, headers={"Location": f"/login?next=/&auth={asked.headers['Authorization']}"}
    ),
    "hung up": lambda _: Answer(hang_up=True),
    "cut off": lambda _: Answer(body=b"[]" * 9, sent=3),
    "no answer": lambda _: Answer(wait=True),
    "not JSON": lambda _: Answer(body=b"?"),
    "half a list": lambda _: says([], X_Result_Count="9"),
}


def everything_said(error: SiteAgentError, client: WaldurClient, caplog: pytest.LogCaptureFixture) -> str:
    """The error with its causes, as a log with tracebacks would show it, and all log lines."""
    parts = [str(error), repr(error), *traceback.format_exception(error), caplog.text, repr(client)]
    return "\n".join([*parts, str(vars(error))])


def way(kind: str, server: StandIn) -> dict[str, Any]:
    if kind == "token":
        return {}
    if kind == "proxy":
        return {"proxy": f"http://user:{PROXY_PASSWORD}@127.0.0.1:{server.port}"}
    return oidc(f"{server.root}/token", secret=OIDC_SECRET)


@pytest.fixture(autouse=True)
def libraries_speak(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever set up a log in this process before has made them quiet."""
    for name in (*logs.QUIET, logs.QUIETER):
        caplog.set_level(logging.DEBUG, name)
        monkeypatch.setattr(logging.getLogger(name), "disabled", False)


@pytest.mark.parametrize("kind", ["token", "oidc", "proxy"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_secret_in_any_error_or_log_line(
    stand_in: StartStandIn, caplog: pytest.LogCaptureFixture, kind: str, script: Callable[[Asked], Answer]
) -> None:
    def with_tokens(asked: Asked) -> Answer:
        if asked.target == "/token":
            return says({"access_token": ACCESS_TOKEN, "expires_in": 300})
        return script(asked)

    server = stand_in(with_tokens)
    client = client_at(server.url, attempts=2, timeouts=Timeouts(read_s=0.15), **way(kind, server))
    with caplog.at_level(logging.DEBUG), pytest.raises(SiteAgentError) as caught:
        list(client.pages("marketplace-orders/"))
    said = everything_said(caught.value, client, caplog)
    assert [secret for secret in HIDDEN if secret in said] == []
    assert "urllib3" in caplog.text


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_no_secret_when_the_oidc_provider_fails(
    stand_in: StartStandIn, caplog: pytest.LogCaptureFixture, script: Callable[[Asked], Answer]
) -> None:
    def provider(asked: Asked) -> Answer:
        echoed = Asked(**{**vars(asked), "headers": {**asked.headers, "Authorization": asked.body.decode()}})
        return script(echoed)

    server = stand_in(provider)
    client = client_at(server.url, timeouts=Timeouts(read_s=0.15), **way("oidc", server))
    if script is SCRIPTS["no answer"]:
        server.stopping.set()
    with caplog.at_level(logging.DEBUG), pytest.raises(SiteAgentError) as caught:
        list(client.pages("marketplace-orders/"))
    said = everything_said(caught.value, client, caplog)
    assert [secret for secret in HIDDEN if secret in said] == []


@pytest.mark.parametrize("letters", ["smart\u2019quote", "two\nlines", "tab\there", "nul\0", "na\u00efve"])
def test_a_token_that_no_header_can_carry(letters: str) -> None:
    with pytest.raises(ConfigError, match=r"waldur_api_token for http://x/api/ .* copy it again") as caught:
        client_at("http://x/api/", token=Secret(letters))
    assert letters not in str(caught.value)


def test_what_is_printed_of_the_way_to_waldur(stand_in: StartStandIn) -> None:
    client = client_at("http://x/api/", proxy=f"http://u:{PROXY_PASSWORD}@p:1")
    assert TOKEN not in repr(client)
    assert PROXY_PASSWORD not in repr(client)
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(client)
