# SPDX-License-Identifier: MIT
"""Broken input for every reader of text from outside, and broken answers of Waldur through whole passes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from benchmarks.parts import Parts
from rig import fuzz_passes, fuzz_targets, fuzzing
from rig.fuzzing import Findings

INPUTS = 98_000
PASSES = 2_000


def run(parts: Parts) -> Iterator[str]:
    logging.disable(logging.CRITICAL)
    try:
        found = {"readers": fuzzing.run(fuzz_targets.targets(), INPUTS)}
        with fuzz_passes.fuzzed_site(parts.new_folder()) as site:
            found["passes"] = fuzzing.run(fuzz_passes.targets(site), PASSES)
    finally:
        logging.disable(logging.NOTSET)
    for what, findings in found.items():
        yield from _lines(what, findings)


def _lines(what: str, found: Findings) -> Iterator[str]:
    yield f"{what}: {found.inputs} inputs, {found.refused} refused, {len(found.uncaught)} uncaught"
    yield f"slowest: {found.slowest_s * 1000:.0f} ms, {found.slowest.splitlines()[0]}"
    yield from map(str, found.uncaught)
