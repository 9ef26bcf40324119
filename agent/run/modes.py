# SPDX-License-Identifier: MIT
"""What each mode does in one pass over an offering."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agent.config.model import Mode
from agent.run.membership import mode as membership
from agent.run.orders import mode as orders
from agent.run.results import PassReport
from agent.run.site import Site
from agent.run.usage import mode as report

PASSES: Mapping[Mode, Callable[[Site], PassReport]] = {
    Mode.ORDER_PROCESS: orders.run_pass,
    Mode.MEMBERSHIP_SYNC: membership.run_pass,
    Mode.REPORT: report.run_pass,
}
