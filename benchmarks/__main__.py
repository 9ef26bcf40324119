# SPDX-License-Identifier: MIT
"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all, and print a line for each figure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from benchmarks import (
    chaos,
    events,
    fuzz,
    history,
    large,
    listings,
    membership,
    orders,
    report,
    usage,
    way,
    worker,
)
from benchmarks.parts import Parts, real_parts


def _full_tests(_: Parts) -> Iterator[str]:
    """Run in full what the tests run a part of: a fault at every single step, many more cases of each property."""
    importing = re.compile(r"^from tests\.scale import", re.MULTILINE)
    files = [path for path in sorted(Path("tests").rglob("*.py")) if importing.search(path.read_text())]
    chosen = [str(path.parent if path.name == "conftest.py" else path) for path in files]
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=3600", *chosen]
    done = subprocess.run(
        command, env={**os.environ, "FULL_TESTS": "1"}, capture_output=True, text=True, check=False
    )
    yield f"the tests in full: {done.stdout.strip().splitlines()[-1]}"


BENCHMARKS: Mapping[str, Callable[[Parts], Iterator[str]]] = {
    "orders": orders.run,
    "membership": membership.run,
    "large": large.run,
    "listings": listings.run,
    "usage": usage.run,
    "history": history.run,
    "report": report.run,
    "events": events.run,
    "chaos": chaos.run,
    "memory": worker.run_memory,
    "kills": worker.run_kills,
    "way": way.run,
    "tests": _full_tests,
    "fuzz": fuzz.run,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(BENCHMARKS)))
def main(names: tuple[str, ...]) -> None:
    with real_parts() as parts:
        for name in names or BENCHMARKS:
            for line in BENCHMARKS[name](parts):
                click.echo(f"{name}: {line}")


if __name__ == "__main__":
    main()
