# SPDX-License-Identifier: MIT
"""The Celery application. Its settings are read when they are first needed, from the file that
WALDUR_SITE_AGENT_CONFIG names; importing this module needs none.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings

from tasks import lean_celery

lean_celery.become(sys.argv, sys.orig_argv)

# Imported after it: what comes with Celery and is of no use to a worker is shut out by then.
from celery import Celery  # noqa: E402

# A worker makes homes and sets quotas: install.md tells when it must be root, and how it need not be.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

app = Celery("waldur_site_cluster", task_cls="tasks.base:SiteTask")
app.config_from_object("tasks.celeryconfig")

# Flower looks for flowerconfig.py in the working directory only: started elsewhere it must not be open to all.
_flower = importlib.util.find_spec("flowerconfig")
if _flower is not None and _flower.origin:
    os.environ.setdefault("FLOWER_CONF", _flower.origin)
