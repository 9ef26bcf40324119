# SPDX-License-Identifier: MIT
"""Usage on a terminal, at several widths, in a pipe, and with names that people make."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from rich.cells import cell_len
from rich.console import Console

from agent.cli.console import PIPE_WIDTH
from agent.cli.usage import table
from agent.core.errors import WaldurError
from agent.core.periods import Month
from agent.plan.usage.figures import Measure, Sheet
from tests.agent.cli.usage.sheets import CPU, PRESENT, account, figures, many, view


class Ascii(io.StringIO):
    encoding = "ascii"


def printed(sheet: Sheet, width: int, *, with_users: bool = False, ascii_only: bool = False) -> list[str]:
    stream = Ascii() if ascii_only else io.StringIO()
    out = Console(file=stream, width=width, color_system=None)
    table.show(view(sheet), with_users=with_users, out=out)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 60, 80, 120, 200])
@pytest.mark.parametrize("months", [1, 3, 12, 36])
def test_rows_fit_and_amounts_are_whole(width: int, months: int) -> None:
    sheet = many(9, months)
    lines = printed(sheet, width, with_users=True)
    tables = [line for line in lines[3:] if line and not line.startswith(("CPU,", "GPU,"))]
    assert max(map(cell_len, tables)) <= max(width, 42), "names are cut, amounts never"
    text = "\n".join(tables)
    for measure in sheet.measures:
        for one in sheet.accounts:
            assert table.formatted(one.figures[measure.name, PRESENT]) in text
    assert len(tables) == sum(
        2 + len(sheet.accounts) + sum(len(sheet.ranked_users(a, m)) for a in sheet.accounts)
        for m in sheet.measures
    ), "a row is a line"


def test_where_months_do_not_fit_there_is_a_curve_of_them() -> None:
    wide, narrow = printed(many(3, 6), 200), printed(many(3, 6), 80)
    assert wide[4].split()[2:8] == [f"2026-{n:02}" for n in range(6, 12)]
    assert narrow[4].split() == ["resource", "account", "2026-06", "..", "2026-11", "of", "limit"]
    assert all(len(row.split()[-4]) == 6 for row in narrow[5:8]), narrow[5:8]


def test_in_a_pipe_nothing_is_cut() -> None:
    sheet = many(500, 12)
    lines = printed(sheet, PIPE_WIDTH)
    assert not any("…" in line for line in lines)
    for one in sheet.accounts:
        row = next(line for line in lines if line.startswith(one.title + "  "))
        assert all(table.formatted(one.figures["cpu", month]) in row for month in sheet.months)


def test_rows_are_sorted_by_use_and_the_sum_is_last() -> None:
    lines = printed(many(500, 1), 120)
    start = lines.index("CPU, core-hours; monthly limits")
    rows = lines[start + 2 : start + 2 + 501]
    amounts = [Decimal(next(w for w in row.split() if w[-3:-2] == ".").replace(",", "")) for row in rows]
    assert amounts[:-1] == sorted(amounts[:-1], reverse=True)
    assert rows[-1].startswith("all ")
    assert amounts[-1] == sum(amounts[:-1])


def test_unknown_is_a_word_and_never_zero() -> None:
    one = account("a", title="One", figures=figures({"cpu": {Month(2026, 10): "5.00"}}))
    lines = printed(Sheet((CPU,), (Month(2026, 10), PRESENT), (one, account("b", title="Two"))), 120)
    assert [line.split()[-2:] for line in lines[-3:]] == [
        ["5.00", "unknown"],
        ["unknown", "unknown"],
        ["5.00", "unknown"],
    ]


def test_without_names_there_is_no_column_for_them() -> None:
    sheet = Sheet(
        (CPU,), (PRESENT,), (account("a", figures=figures({"cpu": {PRESENT: "5.00"}})), account("bb"))
    )
    lines = printed(sheet, 80)
    assert lines[4].split() == ["account", "2026-11", "of", "limit"]
    assert [line.split()[:2] for line in lines[5:]] == [["a", "5.00"], ["bb", "unknown"], ["all", "5.00"]]


@pytest.mark.parametrize(
    ("spent", "limit", "words"),
    [
        ("5.00", "10", ["█████", "50%"]),
        ("0.01", "10", ["▏", "0%"]),
        ("12.00", "10", ["██████████", "120%"]),
        ("5.00", "0", ["██████████", "over", "0"]),
        ("5.00", "0.001", ["██████████", ">9999%"]),
        ("0.00", "10", ["0%"]),
    ],
)
def test_a_bar_is_what_is_used_of_the_limit(spent: str, limit: str, words: list[str]) -> None:
    one = account(
        "a", title="One", figures=figures({"cpu": {PRESENT: spent}}), limits={"cpu": Decimal(limit)}
    )
    assert printed(Sheet((CPU,), (PRESENT,), (one,)), 80)[5].split()[3:] == words


def test_without_limits_bars_are_measured_by_the_largest() -> None:
    accounts = [
        account(n, title=n, figures=figures({"cpu": {PRESENT: a}})) for n, a in (("a", "8"), ("b", "4"))
    ]
    lines = printed(Sheet((CPU,), (PRESENT,), tuple(accounts)), 80)
    assert lines[3] == "CPU, core-hours"
    assert [line.split()[3:] for line in lines[5:7]] == [["██████████"], ["█████"]]


def test_a_limit_whose_period_is_not_seen_measures_nothing() -> None:
    yearly = Measure("cpu", "CPU", "core-hours", "annual")
    one = account("a", title="One", figures=figures({"cpu": {PRESENT: "5.00"}}), limits={"cpu": Decimal(9)})
    lines = printed(Sheet((yearly,), (PRESENT,), (one,)), 120)
    assert lines[3] == "CPU, core-hours; yearly limits, of which these months do not show the use"
    assert lines[5].split()[3:] == ["██████████"]


def test_what_people_type_steers_no_terminal() -> None:
    one = account("a\x1b[2J", title="[bold]\x1b]0;x\x07\n\u202eevil\u2028[/]", users={"\x1b[31mann": {}})
    said = "\n".join(printed(Sheet((CPU,), (PRESENT,), (one,)), 120, with_users=True))
    assert r"[bold]\x1b]0;x\x07 \u202eevil" in said
    assert not set("\x1b\x07\u202e\u2028") & set(said)


def test_a_plain_terminal_gets_plain_signs() -> None:
    lines = printed(many(3, 6), 80, ascii_only=True)
    bars = [word for line in lines[5:8] for word in line.split() if set(word) == {"#"}]
    assert len(bars) == 3
    assert not set("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉") & set("".join(lines))


def test_no_account_is_said() -> None:
    assert printed(Sheet((CPU,), (PRESENT,), ()), 80)[-1] == "no resource of this offering has an account yet"


def test_others_are_not_mentioned_where_all_are_shown() -> None:
    out = io.StringIO()
    away = WaldurError("away", method="GET", path="")
    sheet = Sheet((CPU,), (PRESENT,), (account("a"),), (account("b"),))
    table.show(view(sheet, waldur=away), out=Console(file=out, width=80))
    assert "besides" not in out.getvalue()


@pytest.mark.parametrize(
    ("names", "cells", "shown"),
    [
        ("hpc_one hpc_two", 7, "hpc_one hpc_two"),
        ("hpc_project_1 bio_project_1", 8, "hpc_pro… bio_pro…"),
        ("hpc_project_1 hpc_project_2", 8, "hpc…ct_1 hpc…ct_2"),
        ("hpc_1_allocation_9 hpc_2_allocation_9", 14, "hpc_1_allocat… hpc_2_allocat…"),
        ("大気循環モデル研究計画 大気循環モデル開発計画", 13, "大気循…究計画 大気循…発計画"),
    ],
)
def test_long_names_stay_different(names: str, cells: int, shown: str) -> None:
    found = table.shortened(names.split(), cells)
    assert sorted(found.values()) == sorted(shown.split())
    assert max(map(cell_len, found.values())) <= cells
