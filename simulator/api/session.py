# SPDX-License-Identifier: MIT
"""Who am I, what roles may do, which version, public configuration."""

from __future__ import annotations

from simulator.render.people import role_body, user_body
from simulator.render.view import pick
from simulator.rules import access
from simulator.rules.errors import forbidden
from simulator.rules.lookup import page_of, view_of
from simulator.server.routes import Call, Reply, Routes

routes = Routes()


@routes.on("GET", "users/me/")
def whoami(call: Call) -> Reply:
    return Reply(body=pick(user_body(view_of(call), call.user), call.query))


@routes.on("GET", "roles/")
def list_roles(call: Call) -> Reply:
    """Return the roles with their permissions, for whoever has a token. A server of 2024 takes no `field` here."""
    view = view_of(call)
    return page_of(
        call, access.roles(call.store), lambda r: role_body(view, r), has_fields=call.age.is_modern
    )


@routes.on("GET", "version/")
def version(call: Call) -> Reply:
    """For staff and support only: a provider's token meets 403."""
    if not (call.user.is_staff or call.user.is_support):
        raise forbidden()
    return Reply(body={"version": call.age.version})


@routes.on("GET", "configuration/", is_public=True)
def configuration(_: Call) -> Reply:
    return Reply(body={"SITE_NAME": "Simulated Waldur", "SITE_DESCRIPTION": "", "features": {}})
