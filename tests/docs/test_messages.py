# SPDX-License-Identifier: MIT
"""Messages that the documents explain are those of the code, and each that the log calls an error is explained."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import REPOSITORY

ROOMS = ("agent", "backends", "tasks")
TROUBLESHOOTING = REPOSITORY / "docs" / "troubleshooting.md"
LEVELS = ("error", "exception", "critical")
# What differs from one message to the other: `%s`, `{name}`.
GAP = "…"
PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdrf]")


def text_of(node: ast.expr) -> str:
    """A text of the code with gaps for what is filled in, or nothing but a gap."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return PLACEHOLDER.sub(GAP, node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(value) for value in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return GAP


@cache
def texts() -> tuple[frozenset[str], frozenset[str]]:
    """All texts of the code but docstrings, and those that are logged as errors."""
    found: set[str] = set()
    logged: set[str] = set()
    for path in (path for room in ROOMS for path in (REPOSITORY / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and node not in docstrings:
                found.add(text_of(node))
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in LEVELS
            ):
                logged |= {text_of(node.args[0])} if ast.unparse(node.func.value) == "log" else set()
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "optional_name":
                # The engine logs what ends a mode that may fail without ending the pass.
                logged.add(f"{text_of(node.value)} of offering {GAP}: {GAP}")
    return frozenset((found | logged) - {GAP}), frozenset(logged)


def explained(page: Path) -> Iterator[str]:
    """The messages in the first column of the tables that have `message` above it."""
    is_of_messages = False
    for line in page.read_text().splitlines():
        if not line.startswith("|"):
            is_of_messages = False
        elif line.startswith(("| message |", "| what the log says |")):
            is_of_messages = True
        elif is_of_messages:
            first = re.split(r"(?<!\\) \| ", line[2:])[0]
            yield from (
                wide.strip() or narrow for wide, narrow in re.findall(r"``(.+?)``(?!`)|`([^`]+)`", first)
            )


def pieces_of(message: str) -> tuple[str, ...]:
    """The words of an explained message between its gaps."""
    between = re.split(rf"{GAP}|\.\.\.|UUID|ID|\bN\b|\bM\b", message)
    return tuple(piece.strip() for piece in between if piece.strip(" :;.,`()"))


def says(text: str, pieces: tuple[str, ...]) -> bool:
    """Whether a text of the code has these words in this order."""
    place = 0
    for piece in pieces:
        place = text.find(piece, place)
        if place < 0:
            return False
    return bool(pieces)


def test_explained_messages_are_those_of_the_code() -> None:
    every, _ = texts()
    pages = sorted((REPOSITORY / "docs").glob("*.md"))
    gone = [
        f"{page.name}: {message}"
        for page in pages
        for message in explained(page)
        if not _said(every, message)
    ]
    assert len(list(explained(TROUBLESHOOTING))) > 80
    assert gone == []


def test_every_message_that_is_logged_as_an_error_is_explained() -> None:
    _, logged = texts()
    begun = [pieces_of(message)[0] for message in explained(TROUBLESHOOTING) if pieces_of(message)]
    worded = {text for text in logged if re.search(r"[a-z]{3}", text)}
    assert worded
    missing = [
        text
        for text in sorted(worded)
        for first in pieces_of(text)[:1]
        if not any(first.startswith(known) or known.startswith(first) for known in begun)
    ]
    assert missing == [], "a row for each in docs/troubleshooting.md: what it is about, and what to do"


def _said(texts_of_code: frozenset[str], message: str) -> bool:
    pieces = pieces_of(message)
    return any(says(text, pieces) for text in texts_of_code)
