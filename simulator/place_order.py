# SPDX-License-Identifier: MIT
"""Place an order in a simulated Waldur and print what becomes of it. Run as a program; arguments: the address of the
Waldur, a name, and limits such as `cpu=100`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

USAGE = "usage: python -m simulator.place_order http://127.0.0.1:8899 NAME cpu=100 ..."
ENDED = ("done", "erred", "rejected", "canceled")
PAUSE_S = 0.05
# So long an order stays in one state before this says where to look.
HINT_AFTER_S = 30


def main(arguments: list[str]) -> int:
    """Return 0 when the order is done; print each of its states with the seconds since it was placed."""
    try:
        root, name, *limits = arguments
        wanted = {key: int(value) for key, _, value in (each.partition("=") for each in limits)}
    except ValueError:
        sys.stderr.write(f"{USAGE}\n")
        return 2
    try:
        return _place(f"{root.rstrip('/')}/control", name, wanted)
    except HTTPError as error:
        sys.stderr.write(f"{root} refuses the order: {error.read().decode(errors='replace')}\n")
    except (OSError, ValueError) as error:
        sys.stderr.write(f"no simulated Waldur answers at {root}: {error}\n")
    except KeyboardInterrupt:
        return 130
    return 1


def _place(control: str, name: str, limits: dict[str, int]) -> int:
    project = _ask(f"{control}/seed")["project_uuids"][0]
    started_s, state, hint_at_s = time.monotonic(), "", 0.0
    uuid = _ask(f"{control}/orders", {"project_uuid": project, "name": name, "limits": limits})["order_uuid"]
    while state not in ENDED:
        order = _ask(f"{control}/orders/{uuid}")
        if order["state"] != state:
            state = order["state"]
            account = _ask(f"{control}/resources/{order['resource_uuid']}")["backend_id"]
            words = (f"{time.monotonic() - started_s:5.2f} s", name, state, account, order["error_message"])
            sys.stdout.write("  ".join(filter(None, words)) + "\n")
            sys.stdout.flush()
            hint_at_s = time.monotonic() + HINT_AFTER_S
        elif hint_at_s and time.monotonic() > hint_at_s:
            sys.stderr.write(
                f"{name} is {state} still: is the offering paused, or the cluster not running? See `status`.\n"
            )
            hint_at_s = 0.0
        time.sleep(PAUSE_S)
    return 0 if state == "done" else 1


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """Raises OSError and ValueError. No proxy: a simulated Waldur is on this machine."""
    sent = None if body is None else json.dumps(body).encode()
    with build_opener(ProxyHandler({})).open(url, sent) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
