# SPDX-License-Identifier: MIT
"""The site of the documents: it builds without a warning, every page is in its navigation, it asks no other host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests import REPOSITORY

DOCS = REPOSITORY / "docs"


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", str(DOCS), "-d", str(target / "trees"),
         "-b", "html", str(source), str(target / "html")],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(DOCS, target)
    # A page that is in no list of docs/index.md, a link to no heading, a fence of no language: each is a warning.
    assert (done.returncode, done.stderr) == (0, "")
    return target / "html"


class Loaded(HTMLParser):
    """What a browser fetches for a page by itself: not the links that a person may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" or "src" in values or "srcset" in values or tag == "object":
            self.addresses += [values.get(name) or "" for name in ("href", "src", "srcset", "data")]


def test_the_site_asks_no_other_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text())
        assert len(loaded.addresses) > 5
        assert [address for address in loaded.addresses if re.match(r"(https?:)?//", address)] == [], (
            page.name
        )
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", sheet.read_text()) == [], (
            sheet.name
        )


def test_every_page_is_in_the_navigation_and_can_be_searched(site: Path) -> None:
    navigation = re.findall(
        r'<a class="reference internal" href="([^"#]+)\.html">', (site / "index.html").read_text()
    )
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert set(navigation) == pages
    index = (site / "searchindex.js").read_text()
    for page in pages:
        assert f'"{page}"' in index


def test_a_page_outside_of_the_navigation_and_a_link_to_nothing_end_the_build(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# One\n\n[two](#none)\n")
    (tmp_path / "other.md").write_text("# Two\n")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "document isn't included in any toctree" in done.stderr and "xref_missing" in done.stderr
