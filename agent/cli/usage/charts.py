# SPDX-License-Identifier: MIT
"""What the usage page draws: amounts as the positions of columns and lines.

Across, everything is in percent of the room that there is, so that a chart fits a phone and its letters stay legible;
up and down in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from agent.cli.usage.table import formatted
from agent.core.periods import Month
from agent.plan.usage.figures import (
    MONTH,
    RATE_KNOWN_AFTER,
    Measure,
    Sheet,
    Use,
    period_bounds,
    period_months,
    used_up,
)

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
# Where the columns of months stand, how high they may be, and how wide where there are few.
FLOOR_PX = 172.0
HEIGHT_PX = 140.0
WIDEST_PERCENT = 14.0
SLOT_USED = 0.68
# A limit much higher than all columns would make these flat: it is given in words.
LIMIT_DRAWN_UP_TO = 5
NAMED_AT_MOST = 12
NAMED_IF_NARROW = 7
CURVE_WIDTH_PX, CURVE_HEIGHT_PX = 84.0, 24.0


@dataclass(frozen=True, slots=True)
class Column:
    """A month in a chart."""

    x: float
    width: float
    middle: float
    name: str
    year: str
    # Its amount in short.
    value: str
    description: str
    y: float = FLOOR_PX
    # None where nothing is known.
    height: float | None = None
    is_present: bool = False
    # Its words are omitted where the chart is narrow.
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class MonthChart:
    columns: tuple[Column, ...]
    lines: tuple[tuple[float, str], ...]
    limit_y: float | None = None
    limit: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """The months of one account, as columns of SVG paths."""

    past: str
    present: str
    # The height of its limit, where that is monthly and not far above.
    limit_y: float | None


@dataclass(frozen=True, slots=True)
class BurnDown:
    """What was left of a limit when its period began, after each month, and now; then what would be."""

    # Across in percent, down in pixels: from the beginning to now.
    line: tuple[tuple[float, float], ...]
    # From now to the day on which nothing is left, or the end of the period.
    ahead: tuple[tuple[float, float], ...]
    begins: str
    ends: str
    left: str
    description: str


def months(
    sheet: Sheet, measure: Measure, totals: Sequence[Decimal | None], limit: Decimal | None
) -> MonthChart:
    """Return the columns of all months, and the limit where it is monthly and not far above them."""
    highest = max((amount for amount in totals if amount), default=Decimal(0))
    limit = limit if measure.period == MONTH else None
    drawn = limit if limit and 0 < limit <= max(highest, Decimal(1)) * LIMIT_DRAWN_UP_TO else None
    top = max(highest, drawn or Decimal(0)) or Decimal(1)
    columns = tuple(_column(sheet, measure, totals, number, top) for number in range(len(totals)))
    return MonthChart(
        columns,
        tuple(_grid(top)),
        limit_y=round(FLOOR_PX - float(drawn / top) * HEIGHT_PX, 2) if drawn else None,
        limit=short(limit) if limit is not None else "",
        description="; ".join(column.description for column in columns),
    )


def _column(
    sheet: Sheet, measure: Measure, totals: Sequence[Decimal | None], number: int, top: Decimal
) -> Column:
    """Return the column of the month with this number. Names stand below some months only, the last among them."""
    month, amount, to_come = sheet.months[number], totals[number], len(totals) - 1 - number
    slot = 100 / len(totals)
    width = min(slot * SLOT_USED, WIDEST_PERCENT)
    middle = (number + 0.5) * slot
    every = -(-len(totals) // NAMED_AT_MOST)
    named = to_come % every == 0
    height = None if amount is None else max(float(amount / top) * HEIGHT_PX, 1.5 if amount else 0.0)
    return Column(
        x=round(middle - width / 2, 3),
        width=round(width, 3),
        middle=round(middle, 3),
        name=MONTHS[month.month - 1][:3] if named else "",
        year=str(month.year) if number == 0 or month.month == 1 else "",
        value="?" if amount is None else compact(amount) if named else "",
        description=f"{name_of(month)}: {formatted(amount)} {measure.unit}",
        y=round(FLOOR_PX - (height or 0), 2),
        height=None if height is None else round(height, 2),
        is_present=month == sheet.present,
        is_minor=len(totals) > NAMED_IF_NARROW and to_come % (2 * every) > 0,
    )


def burn_down(sheet: Sheet, measure: Measure, use: Use, taken: datetime) -> BurnDown | None:
    """Return how the limits of all accounts together get less; None where it is not known how much of them is used.
    `taken`: when the sheet was read, in the site's zone.
    """
    bounds = period_bounds(measure.period, taken)
    if bounds is None or use.spent is None or not use.limit:
        return None
    (start, end), limit, left = bounds, use.limit, use.limit - use.spent

    def place(moment: datetime, amount: Decimal) -> tuple[float, float]:
        share = float(max(amount, Decimal(0)) / limit)
        return round(100 * ((moment - start) / (end - start)), 2), round(FLOOR_PX - share * HEIGHT_PX, 2)

    line, spent = [place(start, limit)], Decimal(0)
    for month in period_months(measure.period, sheet.present)[:-1]:
        spent += sheet.total(measure, month) or Decimal(0)
        line.append(place(month.next.start(start.tzinfo or UTC), limit - spent))
    line.append(place(taken, left))
    day = used_up(use, bounds, taken)
    said = f"used up on {day_of(day)} at this rate" if day else "used up" if left <= 0 else ""
    until = day or end
    ahead: tuple[tuple[float, float], ...] = ()
    if left > 0 and taken - start >= RATE_KNOWN_AFTER:
        ahead = (line[-1], place(until, limit - use.spent * Decimal((until - start) / (taken - start))))
    return BurnDown(
        tuple(line),
        ahead,
        begins=day_of(start),
        ends=day_of(end - timedelta(days=1)),
        left=said or f"{short(left)} {measure.unit} left",
        description=f"{short(max(left, Decimal(0)))} of {short(limit)} {measure.unit} left on {day_of(taken)}"
        + (f"; {said}" if said else ""),
    )


def _grid(top: Decimal) -> list[tuple[float, str]]:
    """Two or three lines at round amounts."""
    step = Decimal(10) ** (top.adjusted())
    while top / step < 2:
        step /= 2 if step / 2 == (step / 2).to_integral_value() or step < 1 else 4
    while top / step > 5:
        step *= 2
    return [
        (round(FLOOR_PX - float(step * n / top) * HEIGHT_PX, 2), compact(step * n))
        for n in range(1, int(top / step) + 1)
    ]


def curve(series: Sequence[Decimal | None], measure: Measure, limit: Decimal | None) -> Curve | None:
    """Return the months of one account; None where there is one only, or nothing is known to be used."""
    highest = max((amount for amount in series if amount), default=Decimal(0))
    if len(series) < 2 or not highest:
        return None
    drawn = limit if limit and measure.period == MONTH and limit <= highest * LIMIT_DRAWN_UP_TO else None
    top = max(highest, drawn or Decimal(0))
    slot = CURVE_WIDTH_PX / len(series)
    columns = []
    for number, amount in enumerate(series):
        height = max(1.0, float(amount / top) * (CURVE_HEIGHT_PX - 2)) if amount else 0.0
        x, y = number * slot + slot * 0.15, CURVE_HEIGHT_PX - height
        columns.append(
            f"M{x:.4g} {CURVE_HEIGHT_PX:g}V{y:.4g}h{slot * 0.7:.3g}V{CURVE_HEIGHT_PX:g}z" if height else ""
        )
    line = round(CURVE_HEIGHT_PX - float(drawn / top) * (CURVE_HEIGHT_PX - 2), 2) if drawn else None
    return Curve("".join(columns[:-1]), columns[-1], line)


def short(amount: Decimal | None) -> str:
    """For headings and charts: 1,234 above a hundred, else with decimals."""
    if amount is None:
        return "unknown"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.2f}"


def compact(amount: Decimal) -> str:
    """Four signs at most, for the room above a bar: 12.3k."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if amount >= size:
            value = amount / size
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}{unit}"
    return f"{amount:.0f}" if amount >= 10 or amount == 0 else f"{amount:.1f}"


def day_of(day: date) -> str:
    """`28 November`"""
    return f"{day.day} {MONTHS[day.month - 1]}"


def name_of(month: Month) -> str:
    return f"{MONTHS[month.month - 1]} {month.year}"


def span_of(months: Sequence[Month]) -> str:
    """`September to November 2026`"""
    first, last = months[0], months[-1]
    if first == last:
        return name_of(last)
    begin = MONTHS[first.month - 1] if first.year == last.year else name_of(first)
    return f"{begin} to {name_of(last)}"
