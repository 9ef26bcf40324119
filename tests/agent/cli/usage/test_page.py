# SPDX-License-Identifier: MIT
"""The page of usage as a file: whole or not there, for its owner only, text that stays text, figures that are right."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import stat
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path

import pytest
from setuptools import Distribution

from agent.cli import pages
from agent.cli.pages import PageNotWritten
from agent.cli.usage import charts, sections
from agent.cli.usage import page as usage_page
from agent.core.errors import WaldurError
from agent.core.model import Resource, ResourceState
from agent.core.periods import Month
from agent.core.usage import UsageSource
from agent.plan.usage.figures import AccountFigures, Measure, Sheet
from tests import REPOSITORY
from tests.agent.cli.usage.sheets import CPU, PRESENT, account, figures, many, view

EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&\x1b[2J"
VOID = {"meta", "link"}
# HTML closes them by itself: in large tables no end tag is written.
OPTIONAL = {"tbody", "tr", "th", "td"}


class Reader(HTMLParser):
    """Elements, their attributes, and whether each that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        while (last := self.open.pop()) != tag:
            assert last in OPTIONAL

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(sheet: Sheet, *, with_users: bool = False, **values: object) -> Reader:
    return Reader(usage_page.render([view(sheet, **values)], with_users=with_users))


@pytest.mark.parametrize(("count", "months"), [(0, 1), (1, 1), (1, 3), (40, 12), (200, 36)])
def test_every_element_is_closed_and_nothing_is_fetched(count: int, months: int) -> None:
    found = page(many(count, months), with_users=True)
    assert found.open == []
    tags = {tag for tag, _ in found.found}
    assert [tag for tag, _ in found.found].count("script") == 1, "its own"
    assert not tags & {"img", "iframe", "object", "embed", "form", "base", "style2"}
    links = [
        v for _, a in found.found for name, v in a.items() if name in ("href", "src", "xlink:href", "action")
    ]
    assert all(link == "data:," or (link or "").startswith("#") for link in links)
    assert "style" not in {name for _, attributes in found.found for name in attributes}
    assert "url(" not in usage_page.render([view(many(1))]) and "@import" not in "".join(found.text)


def test_names_are_text_whatever_they_look_like() -> None:
    months = figures({"cpu": {PRESENT: "5.00"}})
    one = account(EVIL, title=EVIL, figures=months, users={EVIL: months}, limits={"cpu": Decimal(9)})
    measure = Measure("cpu", EVIL, EVIL, EVIL)
    text = usage_page.render(
        [
            view(
                Sheet((measure,), (PRESENT,), (one,)),
                notes=(EVIL,),
                waldur=WaldurError(EVIL, method="GET", path=""),
            )
        ],
        {EVIL: EVIL},
        with_users=True,
    )
    found = Reader(text)
    tags = [tag for tag, _ in found.found]
    assert tags.count("script") == 1 and "img" not in tags
    assert not any(name.startswith("on") for _, attributes in found.found for name in attributes)
    assert "\x1b" not in text
    assert sum("<script>alert(1)</script>" in data for data in found.text) > 5


def test_the_page_says_when_and_how_it_was_counted() -> None:
    text = usage_page.render([view(many(3), source=UsageSource.ALLOCATED)])
    for sentence in (
        "As of 21 November 2026, 17:40 (Europe/Tallinn).",
        "November 2026 has not ended: its figures still grow.",
        "Counted is what jobs were given (AllocTRES), on cluster <bdi>larch</bdi>.",
        "Usage, September to November 2026",
        "names people",
    ):
        assert sentence in text


def test_what_is_unknown_is_said() -> None:
    october = figures({"cpu": {Month(2026, 10): "5.00"}})
    sheet = Sheet((CPU,), (Month(2026, 10), PRESENT), (account("a", figures=october), account("b")))
    text = usage_page.render([view(sheet, unanswered=(PRESENT,), notes=("a note",))], {"Other": "no answer"})
    assert "November 2026: unknown, the cluster names no job at all" in text
    assert "<li>a note</li>" in text
    assert "<bdi>Other</bdi></strong> could not be read: no answer" in text
    assert text.count('<td class="wide">?') == 2, "of both in November"
    assert text.count('<td class="past">?') == 1, "of b in October"
    assert text.count('<td class="number">unknown</td>') == 1, "of all in November"
    assert 'class="unknown"' in text


def test_a_new_cluster_has_one_sentence_and_no_charts_of_nothing() -> None:
    sheet = Sheet(
        (CPU,), (Month(2026, 10), PRESENT), (account("a", title="One", limits={"cpu": Decimal(9)}),)
    )
    text = usage_page.render([view(sheet, unanswered=sheet.months)])
    assert "The cluster names no job at all in October to November 2026: nothing is known of usage." in text
    assert "unknown" not in text.split("</style>")[1].split("<script>")[0].replace("that is unknown", "")
    assert "<td>?<td>9<td><td>" in text, "the limit is known"
    later = Sheet((CPU,), sheet.months, (account("a", figures=figures({"cpu": {PRESENT: "5.00"}})),))
    text = usage_page.render([view(later, unanswered=(Month(2026, 10),))])
    assert "Before November 2026: unknown" in text and 'class="unknown"' not in text


def test_what_has_ended_is_folded_away() -> None:
    going = Resource("1" * 32, "Gone", "slug", ResourceState.TERMINATING, "gone")
    used = figures({"cpu": {PRESENT: "5.00"}})
    ended = AccountFigures("gone", (going,), figures({"cpu": {PRESENT: "0.00"}}))
    sheet = Sheet(
        (CPU,), (PRESENT,), (account("a", figures=used), ended), others=(account("x", figures=used),)
    )
    section = sections.offering(view(sheet))
    assert [bar.name for bar in section.components[0].accounts] == ["a"]
    tables = {each.summary: [row.name for (row,) in each.groups] for each in section.tables()}
    assert tables == {
        "The account": ["a"],
        "2 accounts, ended or of no resource of this offering,": ["x", "Gone"],
    }


def test_a_page_of_5000_accounts_stays_below_a_megabyte() -> None:
    text = usage_page.render([view(many(5000, 12))], with_users=True)
    assert text.count("<tbody><tr>") > 5000
    assert len(text.encode()) < 1_000_000


def test_each_chart_has_its_figures_in_a_table() -> None:
    sheet = many(40, 6)
    found = page(sheet)
    text = "".join(found.text)
    for measure in sheet.measures:
        for one in sheet.accounts:
            assert f"{one.figures[measure.name, PRESENT]:,.2f}" in text
    assert [tag for tag, _ in found.found].count("details") == 2 * len(sheet.measures) + 2, (
        "accounts, projects"
    )
    images = [attributes for tag, attributes in found.found if tag == "svg"]
    assert all(a.get("aria-label") or a.get("aria-hidden") == "true" for a in images)


def test_users_of_each_account_are_there_on_request() -> None:
    rows = [a for tag, a in page(many(5)).found if tag == "tr" and a.get("class") == "user"]
    assert rows == []
    rows = [a for tag, a in page(many(5), with_users=True).found if tag == "tr" and a.get("class") == "user"]
    assert len(rows) == sum(len(a.users) for a in many(5).accounts)


def test_bars_are_as_long_as_what_is_used_of_the_limit() -> None:
    shares = {"a": "2.00", "b": "9.00", "c": "12.00", "d": "1.00"}
    accounts = [
        account(name, figures=figures({"cpu": {PRESENT: amount}}), limits={"cpu": Decimal(10)})
        for name, amount in shares.items()
    ]
    (component,) = sections.offering(view(Sheet((CPU,), (PRESENT,), tuple(accounts)))).components
    assert [(b.name, b.filled, b.percent, b.state) for b in component.accounts] == [
        ("c", 100.0, "120%", "over"),
        ("b", 90.0, "90%", "near"),
        ("a", 20.0, "20%", ""),
        ("d", 10.0, "10%", ""),
    ]
    assert (component.total, component.limit, component.percent) == ("24.00", "40.00", "60%")


@pytest.mark.parametrize("highest", ["0.00", "0.03", "1.00", "9.99", "123456.00", "999999999999.00"])
@pytest.mark.parametrize("months", [1, 2, 36])
def test_columns_stand_in_the_chart_and_lines_at_round_amounts(highest: str, months: int) -> None:
    sheet = many(1, months)
    amounts = {("cpu", m): Decimal(highest) * n / months for n, m in enumerate(sheet.months, 1)}
    one = account("a", figures=amounts, limits={"cpu": Decimal(highest) * 2})
    (component,) = sections.offering(view(Sheet((CPU,), sheet.months, (one,)))).components
    chart = component.chart
    assert len(chart.columns) == months
    assert all(c.x >= 0 and c.x + c.width <= 100.01 and c.y >= 0 for c in chart.columns)
    assert [c.is_present for c in chart.columns] == [False] * (months - 1) + [True]
    heights = [c.height or 0 for c in chart.columns]
    assert heights == sorted(heights)
    assert chart.lines
    assert len(chart.lines) <= 6
    assert all(0 <= y < charts.FLOOR_PX for y, _ in chart.lines)
    if Decimal(highest):
        assert chart.limit_y == pytest.approx(charts.FLOOR_PX - charts.HEIGHT_PX)
        assert max(heights) == pytest.approx(charts.HEIGHT_PX / 2, abs=1.5)


def test_a_file_is_for_its_owner_and_one_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "usage.html"
    pages.write(path, usage_page.render([view(many(1))]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    pages.write(path, usage_page.render([view(many(2))]))
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(target)
    os.mkfifo(tmp_path / "fifo")
    for path in (link, tmp_path / "fifo", tmp_path, tmp_path / "no" / "such"):
        with pytest.raises(PageNotWritten):
            pages.write(path, usage_page.render([view(many(1))]))
    assert link.is_symlink() and target.read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fifo", "link", "target"]


def test_the_policy_allows_this_style_and_nothing_else() -> None:
    text = usage_page.render([view(many(1))])
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"].startswith("'sha256-")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert set(rules) == {"default-src", "style-src", "script-src", "img-src", "base-uri", "form-action"}


def test_an_installed_package_has_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the build takes along besides the modules."""
    monkeypatch.chdir(REPOSITORY)
    distribution = Distribution()
    distribution.parse_config_files()
    build = distribution.get_command_obj("build_py")
    build.ensure_finalized()
    files = {name for _, _, _, names in build.get_data_files_without_manifest() for name in names}
    assert {path.name for path in Path(pages.__file__).parent.glob("*.[cj]*")} <= files
