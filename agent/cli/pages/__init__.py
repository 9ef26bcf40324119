# SPDX-License-Identifier: MIT
"""Write pages for a browser: everything is in the file, nothing is fetched, no script runs but the page's own.

A page names people, so a new file is for its owner only; one that is there keeps its mode. What Waldur or the cluster
say is text and never markup, and the page's own policy forbids whatever would get past.
"""

from __future__ import annotations

import base64
import hashlib
import stat
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from agent import __version__
from agent.cli.moments import age, until
from agent.cli.options import number
from agent.core.errors import SiteAgentError
from agent.core.printable import printable
from agent.host import files
from agent.state.store import stamp

MODE = 0o600
SELF, NONE = "'self'", "'none'"


class PageNotWritten(SiteAgentError):
    """The page cannot be put where it was asked for."""


def render(name: str, *, refresh_s: int = 0, console: Mapping[str, str] | None = None, **content: Any) -> str:
    """Return the page of this name as HTML; with `refresh_s` a browser loads it again after so many seconds. `console`:
    name and role of who is logged in there, and the token of its forms; None for a file.
    """
    style, script = _own(name, is_console=console is not None)
    return (
        _environment()
        .get_template(f"{name}.html.j2")
        .render(
            **content,
            refresh_s=refresh_s,
            console=console,
            policy=policy(name, forms=console is not None),
            style=style,
            script=script,
            version=__version__,
        )
    )


def part(name: str, **content: Any) -> Markup:
    """Return a part that pages include, to be put into one of them as it is."""
    return Markup(_environment().get_template(f"{name}.html.j2").render(**content))  # noqa: S704  a template's own


@cache
def policy(name: str, *, forms: bool = False) -> str:
    """Return what a page may do: have its own style and script, and in the console send forms there and load itself
    again. Fetch nothing else.
    """
    style, script = _own(name, is_console=forms)
    rules = ["default-src 'none'", f"style-src 'sha256-{_digest(style)}'"]
    rules += [f"script-src 'sha256-{_digest(script)}'"] if script else []
    rules += [f"connect-src {SELF}"] if forms else []
    return "; ".join([*rules, "img-src data:", "base-uri 'none'", f"form-action {SELF if forms else NONE}"])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("agent.cli", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(zip=zip)
    environment.filters.update(age=_age, until=_until, number=number)
    return environment


def _age(since: datetime) -> Markup:
    """Return how long ago a moment is; the moment itself is seen by who points at it."""
    return _moment(since, age(since))


def _until(moment: datetime) -> Markup:
    """Return how far off a moment is, likewise."""
    return _moment(moment, until(moment))


def _moment(moment: datetime, text: str) -> Markup:
    exact = f"{moment.astimezone():%d %B %Y, %H:%M:%S %Z}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(stamp(moment), exact, text)


@cache
def _own(name: str, *, is_console: bool) -> tuple[str, str]:
    """Return style and script of a page. Those of the console share some."""
    shared = ("base", "status", "console") if is_console else ("base",)
    names = dict.fromkeys((*shared, name))
    return _texts(names, "css"), _texts(names, "js")


def _texts(names: Iterable[str], ending: str) -> str:
    """Return the files of these names, one after the other; a page need not have each."""
    files_ = (resources.files(__name__).joinpath(f"{name}.{ending}") for name in names)
    return "".join(each.read_text(encoding="utf-8") for each in files_ if each.is_file())


def _digest(text: str) -> str:
    """Return the digest by which a page's policy allows its own style or script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def write(path: Path, text: str) -> None:
    """Put a page at `path`, whole or not at all. Raises PageNotWritten."""
    if not path.parent.is_dir():
        raise PageNotWritten(f"{path} cannot be written: there is no folder {path.parent}; none is made")
    try:
        files.put(path, text.encode("utf-8", "replace"), mode=_mode_of(path))
    except OSError as error:
        raise PageNotWritten(f"{path} cannot be written: {error.strerror}") from error


def _printable(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _mode_of(path: Path) -> int:
    """Return the mode that the file has, or gets. Raises PageNotWritten where something else than a file is there."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return MODE
    if not stat.S_ISREG(there.st_mode):
        raise PageNotWritten(f"{path} is no ordinary file, and is not replaced by one")
    return stat.S_IMODE(there.st_mode)
