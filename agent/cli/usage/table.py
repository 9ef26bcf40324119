# SPDX-License-Identifier: MIT
"""Usage on a terminal: a table for each component, an account in each row, who used most first.

Figures are never cut. Where they do not fit, months become a small curve, and then names are shortened; in a pipe
or a file all months and names are there in full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal

from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from agent.cli.console import console
from agent.cli.options import number
from agent.core.periods import Month
from agent.core.printable import printable
from agent.core.usage import UsageSource
from agent.plan.usage.figures import MONTH, Measure, Row, Sheet, Use
from agent.run.usage.view import UsageView

BAR_CELLS = 10
GAP = 2
NAME_AT_LEAST = 12
NAME_WIDTH = 14
# Where a long name is cut: at its end, in the middle, at its beginning.
HEADS_KEPT = (1.0, 0.5, 0.0, 0.75, 0.25)
EIGHTHS = " ▏▎▍▌▋▊▉█"
CURVE = "▁▂▃▄▅▆▇█"
PLAIN_CURVE = "_.:-=+*#"
UNKNOWN = "unknown"
OF_LIMIT = "of limit"
COUNTED = {
    UsageSource.REQUESTED: "what jobs asked for (ReqTRES)",
    UsageSource.ALLOCATED: "what jobs were given (AllocTRES)",
}
PERIODS = {"month": "monthly", "quarterly": "quarterly", "annual": "yearly", "total": "total"}


def counted(view: UsageView) -> str:
    """Return what the figures count, in words."""
    return view.charged or COUNTED[view.source]


def show(view: UsageView, *, with_users: bool = False, out: Console | None = None) -> None:
    """Print one offering."""
    out = out or console()
    sheet = view.sheet
    say(out, f"{printable(view.name)}: usage until {view.taken:%Y-%m-%d %H:%M} ({view.zone})", style="bold")
    say(out, f"counted is {counted(view)} on cluster {view.cluster}")
    for month in view.unanswered:
        say(out, f"{month}: unknown, the cluster names no job at all")
    for note in view.notes:
        say(out, printable(note))
    if not sheet.accounts:
        say(out, "no resource of this offering has an account yet")
    for measure in sheet.measures if sheet.accounts else ():
        out.line()
        limits = ""
        if any(measure.name in account.limits for account in sheet.accounts):
            limits = f"; {PERIODS.get(measure.period, printable(measure.period))} limits"
            has_shares = any(sheet.use(a, measure).share is not None for a in sheet.accounts)
            if measure.period != MONTH and not has_shares:
                limits += ", of which these months do not show the use"
        say(out, f"{printable(measure.label)}, {printable(measure.unit)}{limits}", style="bold")
        out.print(_table(sheet, measure, out, with_users=with_users), crop=False)
        if sheet.others and view.waldur is None:
            say(
                out,
                f"besides, {number(len(sheet.others), 'account')} that no resource of this offering names: "
                f"{formatted(sheet.total_of_others(measure))} in {sheet.present}",
            )


def formatted(amount: Decimal | None) -> str:
    return UNKNOWN if amount is None else f"{amount:,.2f}"


def percent(use: Use) -> str:
    """Return the share used of the limit; empty where there is none."""
    if use.share is None:
        return "over 0" if use.is_over else ""
    return f"{use.share:.0%}" if use.share < 100 else ">9999%"


def shortened(names: Iterable[str], cells: int) -> dict[str, str]:
    """Return names, shortened where they are too long: at the place that leaves most of them different."""
    distinct = sorted(set(names))
    tries = [{name: _cut(name, cells, kept) for name in distinct} for kept in HEADS_KEPT]
    return max(tries, key=lambda short: len(set(short.values())))


def _cut(name: str, cells: int, head: float) -> str:
    """`head`: which part of the room the beginning gets."""
    if cell_len(name) <= cells:
        return name
    begins = int((cells - 1) * head)
    end = name[len(name) - (cells - 1 - begins) :]
    while cell_len(end) > cells - 1 - begins:
        end = end[1:]
    return f"{set_cell_size(name, begins)}…{end}"


def exact(
    titles: Sequence[str],
    rows: Sequence[tuple[str, Sequence[Text]]],
    widths: Mapping[int, int],
    *,
    left: Set[int],
) -> Table:
    """Return a table whose columns are as wide as they must be: rich neither measures nor cuts. `rows` with their
    styles; `widths` of columns whose cells may be shorter or cut; `left`: columns of text, all others are of amounts.
    """
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    table.width = GAP * len(titles)
    for place, title in enumerate(titles):
        width = widths.get(place) or max(len(title), *(len(cells[place]) for _, cells in rows))
        table.width += width
        justify: JustifyMethod = "left" if place in left else "right"
        table.add_column(title, width=width, no_wrap=True, overflow="ellipsis", justify=justify)
    for style, cells in rows:
        table.add_row(*cells, style=style)
    return table


def say(out: Console, sentence: str, *, style: str = "") -> None:
    out.print(Text(sentence, style=style), soft_wrap=True)


def _table(sheet: Sheet, measure: Measure, out: Console, *, with_users: bool) -> Table:
    rows = [
        replace(row, name=f"{'  ' * row.level}{printable(row.name)}", account=printable(row.account))
        for row in sheet.rows(measure, with_users=with_users)
    ]
    if len(sheet.accounts) > 1:
        rows.append(sheet.row_of_all(measure))
    layout = _layout(rows, sheet.months, out.width)
    ascii_only = not (out.encoding or "").lower().startswith("utf")
    names = shortened((row.name for row in rows), layout.name_cells or layout.account_cells)
    accounts = shortened((row.account for row in rows), layout.account_cells)
    largest = sheet.largest(measure)
    lines = []
    for row in rows:
        short = replace(row, name=names[row.name], account=accounts[row.account])
        style = "dim" if row.level else "" if row.account else "bold"
        lines.append((style, _cells(short, layout, largest, ascii_only=ascii_only)))
    titles = [*(("resource",) if layout.name_cells else ()), "account"]
    widths = [*((layout.name_cells,) if layout.name_cells else ()), layout.account_cells]
    left = set(range(len(titles) + layout.with_curve))
    titles += [_curve_title(sheet.months)] if layout.with_curve else []
    titles += map(str, layout.months)
    if layout.with_bar:
        left.add(len(titles))
        titles += ["", OF_LIMIT]
    return exact(titles, lines, dict(enumerate(widths)), left=left)


def _cells(row: Row, layout: Layout, largest: Decimal, *, ascii_only: bool) -> list[Text]:
    cells = [Text(row.name), Text(row.account)] if layout.name_cells else [Text(row.account or row.name)]
    if layout.with_curve:
        cells.append(Text(_curve(row.amounts, ascii_only=ascii_only)))
    cells += [Text(formatted(amount)) for amount in row.amounts[-len(layout.months) :]]
    if layout.with_bar:
        share = row.use.filled(row.amounts[-1] if row.account else None, largest)
        style = "red" if row.use.is_over else "yellow" if row.use.is_near else "green"
        cells.append(Text("" if row.level else bar(share, ascii_only=ascii_only), style=style))
        cells.append(Text(percent(row.use), style=style))
    return cells


def bar(share: float, *, ascii_only: bool = False, cells: int = BAR_CELLS) -> str:
    """Return a bar; something is visible of whatever is more than nothing."""
    eighths = min(cells * 8, max(1 if share > 0 else 0, round(share * cells * 8)))
    whole, rest = divmod(eighths, 8)
    if ascii_only:
        return "#" * max(whole, 1 if share > 0 else 0)
    return "█" * whole + (EIGHTHS[rest] if rest else "")


def _curve(series: Sequence[Decimal | None], *, ascii_only: bool) -> str:
    """A sign for each month, as high as the month is against the highest; a question mark for an unknown one."""
    signs = PLAIN_CURVE if ascii_only else CURVE
    highest = max((amount for amount in series if amount), default=Decimal(0))
    return "".join(
        "?" if a is None else signs[round(float(a / highest) * (len(signs) - 1))] if highest else signs[0]
        for a in series
    )


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit."""

    # 0 where there are no names.
    name_cells: int
    account_cells: int
    # Those with figures.
    months: tuple[Month, ...]
    with_curve: bool = False
    with_bar: bool = True


def _layout(rows: Sequence[Row], months: tuple[Month, ...], width: int) -> Layout:
    """All months where they fit; else as many as do, and a curve of all; at last no bar."""
    has_names = any(row.name and row.account for row in rows)
    names = max(len("resource"), *(cell_len(r.name) for r in rows)) if has_names else 0
    accounts = max(len("account"), *(cell_len(r.account or ("" if has_names else r.name)) for r in rows))
    figures = [
        max(len(str(months[0])), *(len(formatted(r.amounts[i])) for r in rows)) for i in range(len(months))
    ]
    gaps = (2 if has_names else 1) * GAP
    needed_width = min(names, NAME_WIDTH) + min(accounts, NAME_WIDTH) + gaps

    def room(listed: int, *, with_curve: bool, with_bar: bool) -> int:
        curve = max(len(_curve_title(months)), len(months)) + GAP if with_curve else 0
        bars = BAR_CELLS + len(OF_LIMIT) + 2 * GAP if with_bar else 0
        return width - sum(figures[-listed:]) - listed * GAP - curve - bars

    choices = [(len(months), False, True)]
    choices += [(listed, True, True) for listed in range(len(months) - 1, 0, -1)]
    choices += [(1, False, True), (1, False, False)]
    for listed, with_curve, with_bar in choices:
        left = room(listed, with_curve=with_curve, with_bar=with_bar)
        if left >= needed_width:
            break
    name_cells, account_cells = _shared(names, accounts, left - gaps)
    return Layout(name_cells, account_cells, months[-listed:], with_curve, with_bar)


def _curve_title(months: Sequence[Month]) -> str:
    return f"{months[0]} .."


def _shared(names: int, accounts: int, room: int) -> tuple[int, int]:
    """The room that names of resources and accounts get: all they need, or halves of what there is."""
    if names + accounts <= room:
        return names, accounts
    if not names:
        return 0, max(NAME_AT_LEAST, room)
    half = max(NAME_AT_LEAST, room // 2)
    if accounts <= half:
        return max(NAME_AT_LEAST, room - accounts), accounts
    if names <= half:
        return names, max(NAME_AT_LEAST, room - names)
    return half, half
