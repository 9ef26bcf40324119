# SPDX-License-Identifier: MIT
"""What answers at which path: the API, the token endpoint, the broker, the control API and a page side by side."""

from __future__ import annotations

from functools import partial

from tornado.web import Application, RequestHandler

from simulator.control.http import Controls, control
from simulator.events import stomp
from simulator.rules import errors
from simulator.server.api_handlers import Api
from simulator.server.faulty import answer_or_fail
from simulator.server.front_page import front_page
from simulator.server.http import Later, Request, Response, Site
from simulator.server.oidc import AskedToken
from simulator.world.store import Store


def application(store: Store, controls: Controls, broker: stomp.StompBroker) -> Site:
    api = Api(store)
    answer = partial(answer_or_fail, faults=controls.faults, log=controls.requests)

    def respond(request: Request) -> Response | Later:
        path = request.path
        if path.startswith("/api/"):
            return answer(api.ask(request))
        if path.startswith("/control/"):
            return control(controls, request)
        match request.method, path.rstrip("/"):
            case "POST", "/oidc/token":
                return answer(AskedToken(store, request))
            case "GET" | "HEAD", "":
                return front_page(store)
            case _, "/oidc/token" | "":
                return Response(status=405)
        return Response(
            status=404, headers={"Content-Type": "text/html"}, content=errors.NOT_FOUND_PAGE.encode()
        )

    handlers = [(stomp.PATH, stomp.StompHandler, {"broker": broker})]
    return Site(respond, Application(handlers, log_function=_log_nothing), stomp.PATH)


def _log_nothing(_: RequestHandler) -> None:
    """Print nothing: the request log keeps what is worth knowing."""
