# SPDX-License-Identifier: MIT
"""Pages of the console in Chromium: narrow and wide, dark, by keyboard alone, alive, and with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from agent.core.overview import Look, SeenAllocation, search_text
from agent.state import pauses
from agent.state.hints import LOOKS, SEEN_ALLOCATIONS
from rig.processes import wait_until
from tests.agent.cli.usage.browser import Browser
from tests.agent.cli.web.running import PASSWORD, Running

pytestmark = pytest.mark.real_part

RESOURCE = "0123456789abcdef0123456789abcdef"
# Markup, a script, and marks that turn the direction of writing.
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.exe\u2066 </bdi></main><script>alert(2)</script>"
EVIL = SeenAllocation(
    search_text(HOSTILE, "a_evil"),
    HOSTILE,
    "a_evil",
    HOSTILE,
    HOSTILE,
    "OK",
    members=("ann",),
    problem=HOSTILE,
)
TEXT = "document.body ? document.body.innerText : ''"
ALIVE = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def seen(console: Running, browser: Browser) -> Iterator[Running]:
    """An operator is logged in, and a pass has seen an allocation with a hostile name."""
    (offering,) = console.settings.offerings
    SEEN_ALLOCATIONS.put(console.settings.state_dir, offering.uuid, {RESOURCE: EVIL})
    look = Look(HOSTILE, False, ((HOSTILE, HOSTILE, HOSTILE),), (HOSTILE,))
    LOOKS.put(console.settings.state_dir, offering.uuid, {f"account:{RESOURCE}": look})
    browser.open(console.url)
    for name, value in {"name": "ann", "password": PASSWORD}.items():
        browser.evaluate(f"document.querySelector('[name={name}]').value = {value!r}")
    browser.evaluate("document.querySelector('main button').click()")
    wait_until("somebody is logged in", lambda: "ann, operator" in browser.evaluate(TEXT))
    yield console
    # Its pages ask for themselves again.
    browser.open("about:blank")


def test_each_page_fits_has_its_landmarks_and_runs_nothing_of_others(seen: Running, browser: Browser) -> None:
    (offering,) = seen.settings.offerings
    for path in (
        "/",
        seen.plan_path,
        "/allocations",
        f"/allocation/{offering.uuid}/{RESOURCE}",
        f"/look/account/{offering.uuid}/{RESOURCE}",
        "/people",
        "/orders",
        "/usage",
        "/audit?q=plan",
        "/queues",
        f"/offering/{offering.uuid}",
    ):
        for width, is_dark in ((375, False), (1200, True), (1600, False)):
            browser.open(f"{seen.url}{path}", width=width, is_dark=is_dark)
            wide = "document.documentElement.scrollWidth"
            assert browser.evaluate(wide) <= width, (path, width, browser.evaluate(_WIDEST))
            assert browser.complaints == [], path
        counted = (
            "['header nav[aria-label]', 'main', 'h1'].map((each) => document.querySelectorAll(each).length)"
        )
        assert browser.evaluate(counted) == [1, 1, 1], path
        assert browser.evaluate(_WITHOUT_NAME) == [], path
        assert browser.evaluate("document.querySelectorAll('img, script').length") == 1, "its own script"
        hosts = {url.split("/")[2] for url in browser.requests if url.startswith("http")}
        assert hosts == {seen.url.split("/")[2]}, path


def test_a_pause_by_keyboard_alone(seen: Running, browser: Browser) -> None:
    (offering,) = seen.settings.offerings
    browser.open(f"{seen.url}/offering/{offering.uuid}", width=375)
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.textContent") == "To the page"
    browser.press("Enter")
    for _ in range(20):
        if browser.evaluate("document.activeElement.name") == "reason":
            break
        browser.press("Tab")
    browser.type("new fans")
    browser.press("Enter")
    wait_until("it is paused", lambda: "Paused by ann (console)" in browser.evaluate(TEXT))
    assert "(new fans)" in pauses.pause_note(seen.settings.state_dir, offering)


def test_a_page_renews_itself_and_loses_no_form(seen: Running, browser: Browser) -> None:
    (offering,) = seen.settings.offerings
    page = f"{seen.url}/allocation/{offering.uuid}/{RESOURCE}"
    browser.open(page)
    browser.evaluate("document.querySelector('a[href^=\"/look/\"]').focus()")
    SEEN_ALLOCATIONS.put(
        seen.settings.state_dir, offering.uuid, {RESOURCE: replace(EVIL, state="Updating", members=("bob",))}
    )
    assert "Updating" not in browser.evaluate(TEXT)
    browser.evaluate(ALIVE)
    wait_until("the page is renewed", lambda: "Updating" in browser.evaluate(TEXT))
    assert "/look/" in browser.evaluate("document.activeElement.href"), "where somebody was"
    # A refusal stays.
    browser.open(f"{seen.url}/offering/{offering.uuid}")
    browser.evaluate("document.querySelector('main form').submit()")
    wait_until("it is refused", lambda: "say why" in browser.evaluate(TEXT))
    browser.evaluate(f"{ALIVE}; fetch('/audit').then(() => document.title = 'asked')")
    wait_until("a later answer is here", lambda: browser.evaluate("document.title") == "asked")
    assert "say why" in browser.evaluate(TEXT)
    # What is being written stays.
    browser.open(f"{seen.url}/offering/{offering.uuid}")
    browser.evaluate("document.querySelector('[name=reason]').focus()")
    browser.type("half a sen")
    pauses.pause(seen.settings.state_dir, offering, by="bob")
    browser.evaluate(f"{ALIVE}; fetch('/audit').then(() => document.title = 'asked')")
    wait_until("a later answer is here", lambda: browser.evaluate("document.title") == "asked")
    assert browser.evaluate("document.querySelector('[name=reason]').value") == "half a sen"
    # What would be approved is never another than what is read.
    browser.open(f"{seen.url}{seen.plan_path}")
    lines = {**seen.found.plan.lines, "new": "remove user zoe"}
    seen.found.held.hold(replace(seen.found.plan, lines=lines))
    before = browser.evaluate("document.querySelector('[name=shown]').value")
    browser.evaluate(ALIVE)
    wait_until("it is said", lambda: "changed since the page was loaded" in browser.evaluate(TEXT))
    assert "zoe" not in browser.evaluate(TEXT)
    assert browser.evaluate("document.querySelector('[name=shown]').value") == before


_WIDEST = """[...document.querySelectorAll('main *, header *')].filter((each) =>
  each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 200)).slice(0, 5)"""
_WITHOUT_NAME = """[...document.querySelectorAll('main input:not([type=hidden]), main select, main button, a')].filter(
  (each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).map((each) => each.outerHTML)"""
