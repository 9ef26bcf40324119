# SPDX-License-Identifier: MIT
"""The Celery side: the application, thin tasks, locks and the scheduler. `celery -A tasks worker|beat|flower`."""

# Before all else: it may start a worker over without what no worker needs.
from tasks.app import app

# isort: split
from tasks import start_up

__all__ = ("app", "start_up")
