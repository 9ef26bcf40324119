# SPDX-License-Identifier: MIT
"""Flower's settings, read by `celery -A tasks flower`: loopback only, and nobody without a password.

Give the password as FLOWER_BASIC_AUTH=user:password in the environment (a command line shows in `ps`), or set
up OAuth with Flower's own options. Its /metrics and /healthcheck stay open to whoever reaches the address.
"""

from tornado.options import options

address = options.address or "127.0.0.1"
port = options.port or 5555
max_tasks = 20000

if not (options.basic_auth or options.auth):
    raise SystemExit(
        "Flower does not start without authentication: set FLOWER_BASIC_AUTH=user:password in its environment, "
        "or configure OAuth with --auth and --auth_provider."
    )
