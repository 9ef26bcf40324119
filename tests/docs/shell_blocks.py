# SPDX-License-Identifier: MIT
"""The commands that the documents show: those of their `sh` and `console` fences, and those within a sentence."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=")
BETWEEN = ("&&", "||", ";", "|", "&")
# Options of sudo and env are in no document.
STARTERS = ("sudo", "exec", "nohup", "time")


@dataclass(frozen=True)
class DocumentedCommand:
    """One simple command of a document: its words, and the variables that are set for it."""

    document: str
    line: int
    words: tuple[str, ...]
    variables: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {' '.join(self.words)}"


def of_document(path: Path) -> Iterator[DocumentedCommand]:
    """Yield the commands of a page's fences in their order."""
    text = path.read_text(encoding="utf-8")
    for fence in FENCE.finditer(text):
        if fence[1] not in ("sh", "console", "shell", "bash"):
            continue
        first = text.count("\n", 0, fence.start(2)) + 1
        for number, line in _lines(fence[2], console=fence[1] == "console"):
            yield from _simple_commands(path.name, first + number, line)


def inline(path: Path, programs: tuple[str, ...]) -> Iterator[DocumentedCommand]:
    """Yield what a page's sentences show as `program words`."""
    text = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), path.read_text(encoding="utf-8"))
    for found in re.finditer(r"(?<!`)`([^`]+)`(?!`)", text):
        try:
            words = shlex.split(found[1])
        except ValueError:
            continue  # no command: a quote or two
        while words and ASSIGNMENT.match(words[0]):
            words.pop(0)
        if len(words) > 1 and words[0] in programs:
            yield DocumentedCommand(path.name, text.count("\n", 0, found.start()) + 1, tuple(words))


def _lines(block: str, *, console: bool) -> Iterator[tuple[int, str]]:
    """Whole lines: continued ones joined, here-documents and what a console answers omitted."""
    waiting, begun, until = "", 0, ""
    for number, line in enumerate(block.splitlines()):
        if until:
            until = "" if line.strip() == until else until
            continue
        if console and not waiting and not line.startswith(("$ ", "# ")):
            continue
        piece = line[2:] if console and not waiting else line
        begun = begun if waiting else number
        if piece.endswith("\\"):
            waiting += piece[:-1] + " "
            continue
        whole, waiting = waiting + piece, ""
        here = re.search(r"<<-?\s*['\"]?(\w+)['\"]?", whole)
        if here:
            until, whole = here[1], whole[: here.start()] + whole[here.end() :]
        yield begun, whole


def _simple_commands(document: str, number: int, line: str) -> Iterator[DocumentedCommand]:
    """The commands of one line, without redirections and without what is behind `#`."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token not in BETWEEN:
            words.append(token)
            continue
        variables = [word for word in words if ASSIGNMENT.match(word)]
        plain = _without_redirections([word for word in words if word not in STARTERS])
        if plain[:1] == ["export"]:
            plain = []
        while plain and ASSIGNMENT.match(plain[0]):
            plain.pop(0)
        if plain or variables:
            yield DocumentedCommand(
                document, number, tuple(plain), tuple(word.partition("=")[0] for word in variables)
            )
        words = []


def _without_redirections(words: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif set(word) <= set("<>&") and word:
            skip = True
            if kept and kept[-1] in ("1", "2"):
                kept.pop()
        else:
            kept.append(word)
    return kept
