# SPDX-License-Identifier: MIT
"""Broken input for every reader of text from outside."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from benchmarks.parts import Parts
from rig import fuzz_targets, fuzzing

INPUTS = 100_000


def run(_: Parts) -> Iterator[str]:
    logging.disable(logging.CRITICAL)
    found = fuzzing.run(fuzz_targets.targets(), INPUTS)
    logging.disable(logging.NOTSET)
    yield f"{found.inputs} inputs, {found.refused} refused, {len(found.uncaught)} uncaught"
    yield f"slowest: {found.slowest_s * 1000:.0f} ms, {found.slowest.splitlines()[0]}"
    yield from map(str, found.uncaught)
