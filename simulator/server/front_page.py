# SPDX-License-Identifier: MIT
"""The page at `/`: what answers here, and the orders as they stand."""

from __future__ import annotations

from tornado.template import Template

from simulator.events import stomp
from simulator.server.http import Response
from simulator.world.store import Store

PAGE = Template(
    """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width">
<title>Simulated Waldur</title>
<style>
body { font: 1rem/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
table { border-collapse: collapse } td, th { padding: .2rem 1rem .2rem 0; text-align: left }
</style>
<h1>Simulated Waldur {{ version }}</h1>
<p>This is not a Waldur to work with: it is the part of Waldur that a site agent sees, in the memory of one process.
What it has ends with that process.</p>
<ul>
<li>API, for a token: <code>/api/</code></li>
<li>events, STOMP over a WebSocket: <code>{{ events }}</code></li>
<li>what stands in its memory: <a href="/control/state">/control/state</a></li>
</ul>
<table>
<tr><th>order<th>for<th>state<th>account</tr>
{% for type, name, state, account in orders %}<tr><td>{{ type }}<td>{{ name }}<td>{{ state }}<td>{{ account }}</tr>
{% end %}</table>
</html>
"""
)


def front_page(store: Store) -> Response:
    with store.lock:
        ordered = [(order, store.resources[order.resource_uuid]) for order in store.orders]
        rows = [(o.type.value, r.name, o.state.value, r.backend_id) for o, r in reversed(ordered)]
        version = store.age.version
    page = PAGE.generate(version=version, events=stomp.PATH, orders=rows)
    return Response(headers={"Content-Type": "text/html; charset=utf-8"}, content=page)
