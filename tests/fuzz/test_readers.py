# SPDX-License-Identifier: MIT
"""Broken input for every reader of text from outside: a tenth of what the benchmark `fuzz` gives them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from rig import fuzz_targets, fuzzing
from tests.scale import FULL

INPUTS = 100_000 if FULL else 10_000


@pytest.fixture(autouse=True)
def no_log() -> Iterator[None]:
    """Ten thousand warnings are of no use to anybody."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(900)
def test_readers_raise_what_they_declare_and_nothing_else() -> None:
    found = fuzzing.run(fuzz_targets.targets(), INPUTS)
    assert found.uncaught == []
    assert found.inputs == INPUTS
    assert 0.2 * INPUTS < found.refused < 0.9 * INPUTS, "broken enough to be refused, whole enough to be read"


def test_the_run_finds_a_reader_that_raises_something_else() -> None:
    careless = fuzzing.Target("careless", ["a|1"], lambda text: int(text.split("|")[1]), (IndexError,))
    found = fuzzing.run([careless], 500)
    assert found.uncaught and found.uncaught[0][0] == "careless"
