# SPDX-License-Identifier: MIT
"""Flower's settings, read by `celery -A tasks flower`: loopback only, a password is needed, and no task is started
here: whoever knows the password looks at tasks and workers, and may stop them (docs/security.md).

Give the password as FLOWER_BASIC_AUTH=user:password in the environment (a command line shows in `ps`), or set
up OAuth with Flower's own options. Its /metrics and /healthcheck stay open to whoever reaches the address.
"""

from flower import urls as _urls
from flower.api import tasks as _api
from tornado.options import options

address = options.address or "127.0.0.1"
port = options.port or 5555
max_tasks = 20000
# The arguments begin with the offering; the uuid of a task opens its page, and is in the log.
tasks_columns = "name,args,state,result,received,runtime,worker,uuid"

if not (options.basic_auth or options.auth):
    raise SystemExit(
        "Flower does not start without authentication: set FLOWER_BASIC_AUTH=user:password in its environment, "
        "or configure OAuth with --auth and --auth_provider."
    )

# Beat, the bridge and the loader start tasks. Flower's API would take any task with any argument.
_starting = (_api.TaskApply, _api.TaskAsyncApply, _api.TaskSend)
_urls.handlers[:] = [
    each
    for each in _urls.handlers
    if not issubclass(each[1] if isinstance(each, tuple) else each.handler_class, _starting)
]
