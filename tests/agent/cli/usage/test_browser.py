# SPDX-License-Identifier: MIT
"""The page of usage in a real browser: nothing is fetched or complained of, charts are drawn, and all of it fits."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest

from agent.cli import pages
from agent.cli.usage import page as usage_page
from agent.plan.usage.figures import Sheet
from tests.agent.cli.usage.browser import Browser
from tests.agent.cli.usage.sheets import CPU, PRESENT, account, figures, many, view

EVIL = "</style></title><script>document.title='evil'</script><img src='http://example.org/x'>"
COLOUR = "getComputedStyle(document.querySelector('{}')).{}"

pytestmark = pytest.mark.real_part


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "usage.html"


def boxes(browser: Browser, selector: str) -> list[dict[str, float]]:
    """Where elements are, and how big."""
    found: list[dict[str, float]] = browser.evaluate(
        f"[...document.querySelectorAll('{selector}')].map(e => e.getBoundingClientRect().toJSON())"
    )
    return found


@pytest.mark.parametrize(("count", "months"), [(1, 3), (200, 12)])
@pytest.mark.parametrize("width", [320, 375, 1200])
def test_a_page_is_drawn_and_fits(browser: Browser, page: Path, count: int, months: int, width: int) -> None:
    sheet = many(count, months)
    pages.write(page, usage_page.render([view(sheet)], with_users=True))
    browser.open(page, width=width)
    assert browser.requests == [page.as_uri(), "data:,"] or browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    columns = boxes(browser, "svg.months rect")
    assert len(columns) == months * 2
    assert all(c["width"] > 3 and c["height"] > 0 for c in columns)
    fills = boxes(browser, "[aria-label^=Accounts] .fill")
    assert len(fills) == 2 * min(count, 15)
    assert all(f["width"] >= 1 for f in fills)
    assert browser.evaluate("document.querySelectorAll('table').length") == 5 + (count > 1)
    assert boxes(browser, "svg.burn .now")


def test_bars_are_as_long_as_they_say(browser: Browser, page: Path) -> None:
    accounts = [
        account(name, figures=figures({"cpu": {PRESENT: f"{share}.00"}}), limits={"cpu": Decimal(100)})
        for name, share in (("a", 75), ("b", 50), ("c", 5))
    ]
    pages.write(page, usage_page.render([view(Sheet((CPU,), (PRESENT,), tuple(accounts)))]))
    browser.open(page)
    fills, tracks = boxes(browser, ".bars.accounts .fill"), boxes(browser, ".bars.accounts .track")
    shares = [fill["width"] / track["width"] for fill, track in zip(fills, tracks, strict=True)]
    assert shares == pytest.approx([0.75, 0.5, 0.05], abs=0.01)


@pytest.mark.parametrize(("width", "months"), [(360, 7), (360, 12), (360, 30), (1200, 36)])
def test_letters_do_not_overlap(browser: Browser, page: Path, width: int, months: int) -> None:
    pages.write(page, usage_page.render([view(many(20, months))]))
    browser.open(page, width=width)
    for selector in ("svg.months .amount", "svg.months .month", ".accounts .who", ".accounts .value"):
        found = [box for box in boxes(browser, f"section:first-of-type {selector}") if box["width"]]
        assert found
        for one, other in pairwise(found):
            apart = one["right"] <= other["left"] + 1 or one["bottom"] <= other["top"] + 1
            assert apart, (selector, one, other)


def test_names_cannot_become_part_of_the_page(browser: Browser, page: Path) -> None:
    months = figures({"cpu": {PRESENT: "5.00"}})
    one = account(EVIL, title=EVIL, figures=months, users={EVIL: months})
    pages.write(page, usage_page.render([view(Sheet((CPU,), (PRESENT,), (one,)))], {EVIL: EVIL}))
    browser.open(page)
    assert browser.evaluate("document.title") == "Usage: Larch HPC, November 2026"
    assert browser.evaluate("document.querySelectorAll('script, img').length") == 1, "its own script"
    assert not [url for url in browser.requests if url.startswith("http")]


@pytest.mark.parametrize("width", [375, 1200])
def test_tables_are_searched_and_sorted(browser: Browser, page: Path, width: int) -> None:
    pages.write(page, usage_page.render([view(many(40, 2))], with_users=True))
    browser.open(page, width=width)
    rows = "[...document.querySelector('.figures').tBodies].filter(e => e.offsetHeight)"
    first = f"{rows}.map(e => parseFloat(e.rows[0].cells[3].innerText.replaceAll(',', '')))"
    browser.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert browser.evaluate(f"{rows}.length") == 40
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for direction in (-1, 1):
        browser.evaluate("document.querySelector('.figures').tHead.rows[0].cells[3].firstChild.click()")
        amounts = browser.evaluate(first)
        assert amounts == sorted(amounts, reverse=direction < 0)
    browser.evaluate(
        "(e => { e.value = 'HPC_project_001 sturm'; e.dispatchEvent(new Event('input')) })"
        "(document.querySelector('[type=search]'))"
    )
    assert browser.evaluate("document.querySelector('.search output').innerText") == "1 of 40"
    (row,) = browser.evaluate(f"{rows}.map(e => e.innerText)")
    assert "hpc_project_001" in row


def test_what_got_past_would_be_forbidden(browser: Browser, page: Path) -> None:
    """The page's own policy, with a page that was tampered with."""
    text = usage_page.render([view(many(1))])
    evil = "<script>document.title='evil'</script><img src='http://example.org/x'><p style='color:red' id=p>x</p>"
    page.write_text(text.replace("</main>", f"{evil}</main>"))
    browser.open(page)
    assert browser.evaluate("document.title").startswith("Usage: Larch HPC")
    assert browser.evaluate(COLOUR.format("#p", "color")) != "rgb(255, 0, 0)"
    assert len(browser.complaints) == 3, "a script, a picture, a style"


def test_it_can_be_read_in_the_dark_and_on_paper(browser: Browser, page: Path) -> None:
    pages.write(page, usage_page.render([view(many(3))]))
    seen = {}
    for name, is_dark, media in (
        ("day", False, "screen"),
        ("night", True, "screen"),
        ("paper", True, "print"),
    ):
        browser.open(page, is_dark=is_dark, media=media)
        paper, ink = (
            browser.evaluate(COLOUR.format("body", "backgroundColor")),
            browser.evaluate(COLOUR.format("h1", "color")),
        )
        seen[name] = (lightness(paper), lightness(ink))
    assert seen["day"][0] > 0.9 and seen["day"][1] < 0.3
    assert seen["night"][0] < 0.2 and seen["night"][1] > 0.8
    assert seen["paper"] == (1.0, 0.0)
    assert all(box["height"] == 0 for box in boxes(browser, "details")), "closed tables are not printed"


def lightness(colour: str) -> float:
    """`rgb(255, 255, 255)` is 1."""
    numbers = [int(n) for n in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(numbers) / (3 * 255)
