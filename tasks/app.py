# SPDX-License-Identifier: MIT
"""The Celery application. Its settings are read when they are first needed, from the file that
WALDUR_SITE_AGENT_CONFIG names; importing this module needs none.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import warnings
from typing import Any

from celery import Celery, signals

from tasks.limits import QUEUED_AT
from tasks.queue import lean_celery

lean_celery.become(sys.argv, sys.orig_argv)

# A worker makes homes and sets quotas: install.md says when it must be root, and how it need not be.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

app = Celery("waldur_site_cluster", amqp="tasks.queue.sending:SiteAmqp", task_cls="tasks.base:SiteTask")
app.config_from_object("tasks.celeryconfig")


@signals.before_task_publish.connect
def _note_time(headers: dict[str, Any] | None = None, **_: Any) -> None:
    if headers is not None:
        headers[QUEUED_AT] = round(time.time(), 3)


# Flower looks for flowerconfig.py in the working directory only: started elsewhere it must not be open to all.
_flower = importlib.util.find_spec("flowerconfig")
if _flower is not None and _flower.origin:
    os.environ.setdefault("FLOWER_CONF", _flower.origin)
