# SPDX-License-Identifier: MIT
"""Feed broken text to everything that reads text from outside: it may raise what it declares, and nothing else.

Inputs are samples with a few mutations, the same for the same seed. The tests run some, `benchmarks` runs many.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

ODD_TEXTS = (
    "", " ", "\x00", "\n", "\r", "\t", "|", "||", ",", "=", "'", '"', "\\", "#", "-", "+", "%", "\x1b[2J", "\u2028",
    "\x85", "\ufeff", "\u212a", "\ud800", "é", "٣", "0", "-1", "1.5", "1e400", "1e1000000", "9" * 400, "NaN", "inf",
    "None", "null", "root", "../..", "$(id)", "2G", "7?", "1K", "cpu=1", "UNLIMITED", "Unknown", "x" * 5000,
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 1e308, float("nan"), float("inf"), 10**400, [], {}, [[]], [None], {"a": None},
    {"": {"": []}}, *ODD_TEXTS,
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One reader."""

    name: str
    # Text, or values for readers of JSON.
    samples: Sequence[Any]
    read: Callable[[Any], object]
    # What it may raise.
    declared: tuple[type[Exception], ...]


@dataclass
class Findings:
    """What came of a run."""

    inputs: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    # The first few: target, exception, input.
    uncaught: list[tuple[str, str, str]] = field(default_factory=list)


def run(targets: Sequence[Target], inputs: int, seed: int = 1) -> Findings:
    """Give `inputs` mutated samples to the targets in turn."""
    draw, found = random.Random(seed), Findings()
    for number in range(inputs):
        target = targets[number % len(targets)]
        given = mutated(draw, draw.choice(target.samples))
        found.inputs += 1
        began_s = time.perf_counter()
        try:
            target.read(given)
        except target.declared:
            found.refused += 1
        except Exception as error:  # noqa: BLE001  (this is what is looked for)
            if len(found.uncaught) < 20:
                found.uncaught.append(
                    (target.name, f"{type(error).__name__}: {error}"[:200], repr(given)[:500])
                )
        took_s = time.perf_counter() - began_s
        if took_s > found.slowest_s:
            found.slowest_s, found.slowest = took_s, f"{target.name}: {repr(given)[:200]}"
    return found


def mutated(draw: random.Random, sample: Any) -> Any:
    """Return the sample with one to four mutations."""
    for _ in range(draw.randint(1, 4)):
        sample = _text(draw, sample) if isinstance(sample, str) else _document(draw, sample)
    return sample


def _text(draw: random.Random, text: str) -> str:
    at = draw.randint(0, len(text))
    end = min(len(text), at + draw.choice((1, 1, 2, 8, 40)))
    match draw.randrange(6):
        case 0:
            return text[:at] + draw.choice(ODD_TEXTS) + text[at:]
        case 1:
            return text[:at] + draw.choice(ODD_TEXTS) + text[end:]
        case 2:
            return text[:at] + text[end:]
        case 3:
            return text[:at]
        case 4:
            return text[:at] + text[at:end] * 3 + text[end:]
        case _:
            lines = text.split("\n")
            draw.shuffle(lines)
            return "\n".join(lines)


def _document(draw: random.Random, document: Any) -> Any:
    """Return a copy in which one value, key or item is another."""
    copy = json.loads(json.dumps(document))
    holders = list(_holders(copy))
    if not holders:
        return draw.choice(ODD_VALUES)
    holder, key = draw.choice(holders)
    match draw.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[draw.choice(ODD_TEXTS)] = holder.pop(key)
        case 2 if isinstance(holder[key], str):
            holder[key] = _text(draw, holder[key])
        case _:
            holder[key] = draw.choice(ODD_VALUES)
    return copy


def _holders(node: Any) -> Iterator[tuple[Any, Any]]:
    pairs = (
        list(node.items())
        if isinstance(node, dict)
        else list(enumerate(node))
        if isinstance(node, list)
        else []
    )
    for key, value in pairs:
        yield node, key
        yield from _holders(value)
