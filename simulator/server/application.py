# SPDX-License-Identifier: MIT
"""The tornado application: the API, the token endpoint, the broker, the control API and a page side by side."""

from __future__ import annotations

from tornado.web import Application, RequestHandler

from simulator.control.http import Controls, control_rules
from simulator.events import stomp
from simulator.server.api_handlers import api_rules
from simulator.server.front_page import FrontPage
from simulator.server.oidc import TokenHandler
from simulator.world.store import Store


def application(store: Store, controls: Controls, broker: stomp.StompBroker) -> Application:
    faults, log = controls.faults, controls.requests
    return Application(
        [
            *api_rules(store, faults, log),
            (r"/oidc/token/?", TokenHandler, {"store": store, "faults": faults, "log": log}),
            (stomp.PATH, stomp.StompHandler, {"broker": broker}),
            *control_rules(controls),
            (r"/", FrontPage, {"store": store}),
        ],
        log_function=_log_nothing,
    )


def _log_nothing(_: RequestHandler) -> None:
    """Print nothing: the request log keeps what is worth knowing."""
