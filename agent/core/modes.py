# SPDX-License-Identifier: MIT
"""What the agent does for an offering, and the processes of `waldur_site_agent` that do it."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What the agent does for an offering; each mode may use a backend of its own."""

    ORDER_PROCESS = "order_process"
    MEMBERSHIP_SYNC = "membership_sync"
    REPORT = "report"


class Service(StrEnum):
    """The modes of `waldur_site_agent`, each a process of its own."""

    ORDER_PROCESS = "order_process"
    REPORT = "report"
    MEMBERSHIP_SYNC = "membership_sync"
    EVENT_PROCESS = "event_process"
