# SPDX-License-Identifier: MIT
"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all, and print a line for each figure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import click

from benchmarks import chaos, events, fuzz, history, large, membership, orders, report, usage, worker
from benchmarks.parts import Parts, real_parts


def _every_step(_: Parts) -> Iterator[str]:
    """Inject a fault at every single step, where the tests take every third."""
    command = [sys.executable, "-m", "pytest", "-q", "--timeout=900", "tests/orders/test_every_step.py"]
    done = subprocess.run(
        command, env={**os.environ, "FULL_TESTS": "1"}, capture_output=True, text=True, check=False
    )
    yield f"every step of a pass fails once: {done.stdout.strip().splitlines()[-1]}"


BENCHMARKS: Mapping[str, Callable[[Parts], Iterator[str]]] = {
    "orders": orders.run,
    "membership": membership.run,
    "large": large.run,
    "usage": usage.run,
    "history": history.run,
    "report": report.run,
    "events": events.run,
    "chaos": chaos.run,
    "memory": worker.run_memory,
    "kills": worker.run_kills,
    "steps": _every_step,
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
