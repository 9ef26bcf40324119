# SPDX-License-Identifier: MIT
"""The Celery side: the application, thin tasks, locks and the scheduler. `celery -A tasks worker|beat|flower`."""

from tasks.app import app

__all__ = ("app",)
