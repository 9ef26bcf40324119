# SPDX-License-Identifier: MIT
"""Requests for one key of the work queue."""

from __future__ import annotations

from tasks.queue.work import Request

KEY = "k"
RUN: Request = {"task": "t", "args": ["o"], "queue": "q", "priority": 3}
# A message that expires: when its worker dies it is not given back.
POLL: Request = {**RUN, "task": "poll"}
