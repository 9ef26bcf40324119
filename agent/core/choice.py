# SPDX-License-Identifier: MIT
"""Which of several things a person means who names one by its uuid or name, or by how either begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from agent.core.account_names import fold, uuid_hex

T = TypeVar("T")

# So many are named in an error, by `printable.shortlist`.
SHOWN = 10


def meant(wanted: str, things: Iterable[T], *names: Callable[[T], str]) -> list[T]:
    """Return the things that are called so, by the first of `names` that any is called so by; else those of which a
    name begins with it. Neither case nor the dashes of a uuid count; an empty word means nothing.
    """
    word, known = fold(wanted), list(things)
    with suppress(ValueError):
        word = uuid_hex(word)
    for name in names:
        if found := [each for each in known if word and fold(name(each)) == word]:
            return found
    # The beginning of a uuid may have dashes, too.
    beginnings = tuple({word, word.replace("-", "")} - {""})
    return [each for each in known if any(fold(name(each)).startswith(beginnings) for name in names)]
