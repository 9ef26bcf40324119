# SPDX-License-Identifier: MIT
"""`python -m benchmarks [NAME ...]`: run the named benchmarks, or all, and print a line for each figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import click

from benchmarks import (
    call_path,
    chaos,
    events,
    fuzz,
    generations,
    history,
    large,
    listings,
    membership,
    orders,
    report,
    usage,
    worker,
)
from benchmarks.parts import Parts, real_parts

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
    "call_path": call_path.run,
    "fuzz": fuzz.run,
    "generations": generations.run,
    "joins": generations.run_joins,
    "slurm_suites": generations.run_suites,
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
