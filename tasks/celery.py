# SPDX-License-Identifier: MIT
"""The application of a worker, beat or Flower: Celery looks for it in a module of this name."""

from tasks import start_up
from tasks.app import app

__all__ = ("app", "start_up")
