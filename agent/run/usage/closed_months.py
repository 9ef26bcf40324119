# SPDX-License-Identifier: MIT
"""Track what Waldur takes from this token while a report is submitted: months that are closed, and dates.

A month that Waldur refuses is left alone for a day, but for components with limits. Where it takes no dates, only its
own present month can be submitted, and only while it is certain which month that is.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from agent.core.errors import WaldurError
from agent.core.periods import Month
from agent.core.usage_actions import UsageAction
from agent.run.results import PassReport
from agent.run.site import Site
from agent.run.usage import planning as report_plan
from agent.run.usage.planning import PlannedMonth, PlannedReport
from agent.waldur import usages

# Components that a month takes which is closed for our token.
NOTHING: frozenset[str] = frozenset()

Sent = TypeVar("Sent")


class MonthAccess:
    """What Waldur takes of each month. Refusals are remembered in the report's state, and noted in it once."""

    def __init__(
        self, site: Site, clock: Callable[[], datetime], plan: PlannedReport, report: PassReport
    ) -> None:
        self._site = site
        self._clock = clock
        self._plan = plan
        self._report = report
        # Months that Waldur refuses, with the components that it takes all the same.
        self._closed: dict[Month, frozenset[str]] = {}
        self._takes_no_dates = False

    def is_dateless(self, month: PlannedMonth) -> bool:
        """Return whether the month is submitted without a date."""
        return self._takes_no_dates or month.date is None

    def open_part(self, month: PlannedMonth, action: UsageAction) -> UsageAction | None:
        """Return the part of an action that Waldur takes; None where the month is closed for it."""
        if month.is_current:
            return action
        taken = NOTHING if self.is_dateless(month) else self._closed.get(month.month)
        return action if taken is None else action.part(taken)

    def send(self, month: PlannedMonth, send: Callable[[datetime | None], Sent]) -> Sent:
        """Send with the month's date; without, where Waldur takes none from this token and it is the present month.
        Raises WaldurError.
        """
        date = None if self._takes_no_dates else month.date
        try:
            return send(date)
        except WaldurError as error:
            if date is None or not month.is_current or not usages.refuses_date(error):
                raise
            if not report_plan.is_certain(self._site, month.month, self._clock()):
                raise
            self._go_without_dates(error)
            return send(None)

    def close(self, month: Month, action: UsageAction, error: WaldurError) -> None:
        """Note that Waldur refused an action for its month."""
        if usages.refuses_date(error):
            self._go_without_dates(error)
            return
        observed, state = self._plan.observed, self._plan.state
        with_limits = frozenset(c.name for c in observed.components if observed.has_limit(c.name))
        is_all = with_limits.issuperset(action.components)
        taken = NOTHING if is_all else with_limits
        self._closed[month] = taken & self._closed.get(month, taken)
        is_news = state.refuse(month, self._clock())
        if is_all:
            state.refuse(month, self._clock(), limits=True)
        if is_news:
            self._report.notes.append(
                f"Waldur takes no usage of {month} from this token any more ({error.detail}); `historical-usage` with "
                "a staff token does it"
            )

    def _go_without_dates(self, error: WaldurError) -> None:
        self._takes_no_dates = True
        if self._plan.state.refuse_dates(self._clock()):
            self._report.notes.append(
                f"Waldur takes no dates from this token ({error.detail}), so that only usage of the present month is "
                "submitted: give the token's user a role at the provider, as its owner or service manager"
            )
