# SPDX-License-Identifier: MIT
"""`make mutants ARGS="--count 20"`: change one place of planners, gate or state, and see whether a test fails.

Each mutant is tried in a copy of the repository, by the tests that are named for its room below: first those of files
named like its own. One that no test notices is printed as a diff. The same seed gives the same mutants.
"""

from __future__ import annotations

import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import click

REPOSITORY = Path(__file__).resolve().parents[1]
# The tests of a room, quickest first; the first prefix that fits counts. `{name}` is that of the changed file.
TESTS = {
    "agent/plan/policy": ("tests/agent/plan/policy", "tests/agent/plan", "tests/agent/run/gate"),
    "agent/plan": ("tests/agent/plan/test_{name}.py", "tests/agent/plan"),
    "agent/run/gate.py": ("tests/agent/run/engine/test_modes.py", "tests/agent/run/gate"),
    "agent/state": ("tests/agent/state/test_{name}.py", "tests/agent/state"),
}
TIMEOUT_S = 1200
AT_ONCE = 2
SWAPPED: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """`path` from the repository; `before` is the text from `start` to `end`, `after` what takes its place."""

    path: str
    start: int
    end: int
    after: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        before, after = (text.decode().splitlines() for text in (source, self.applied(source)))
        return "\n".join(difflib.unified_diff(before, after, self.path, self.path, lineterm="", n=2))


def changed(node: ast.AST) -> Iterator[str]:
    """Yield what may stand in place of an expression or statement."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPPED:
        swapped = ast.Compare(node.left, [SWAPPED[type(node.ops[0])]()], node.comparators)
        yield f"({ast.unparse(swapped)})"
    elif isinstance(node, ast.BoolOp):
        yield f"({ast.unparse(ast.BoolOp(SWAPPED[type(node.op)](), node.values))})"
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPPED:
        yield f"({ast.unparse(ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right))})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"bool({ast.unparse(node.operand)})"
    elif isinstance(node, ast.IfExp):
        yield f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
    elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        yield str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Continue):
        yield "break"
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield | ast.YieldFrom):
        yield "pass" if isinstance(node.value, ast.Call) else "yield from ()"


def mutants(path: str) -> Iterator[Mutant]:
    """Yield what may change in the functions of a file, but for their signatures."""
    source = (REPOSITORY / path).read_bytes()
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    for statement in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)):
        for node in (each for part in statement.body for each in ast.walk(part)):
            for after in changed(node):
                first = lines[node.lineno - 1] + node.col_offset
                last = lines[node.end_lineno - 1] + node.end_col_offset
                yield Mutant(path, first, last, after)


def tests_of(mutant: Mutant) -> list[str]:
    tests = next(tests for room, tests in TESTS.items() if mutant.path.startswith(room))
    named = [each.format(name=Path(mutant.path).stem) for each in tests]
    return [each for each in named if (REPOSITORY / each).exists()]


def is_killed(mutant: Mutant, copies: Queue[Path]) -> bool:
    """Whether a test of it fails. One that does not end counts as killed, as does one that cannot be imported."""
    copy = copies.get()
    file = copy / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        return any(fails(copy, tests) for tests in tests_of(mutant))
    finally:
        file.write_bytes(source)
        copies.put(copy)


def fails(copy: Path, tests: str) -> bool:
    words = ["-qx", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, tests], cwd=copy, capture_output=True,
            env={**os.environ, "PYTHONPATH": str(copy)}, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def copied(files: Sequence[str], copy: Path) -> Path:
    for name in files:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, copy / name, follow_symlinks=False)
    return copy


@click.command()
@click.option("--count", default=200, help="how many mutants", show_default=True)
@click.option("--seed", default=1, help="which ones", show_default=True)
@click.option("--under", default="", help="only files that begin so: agent/state")
def main(count: int, seed: int, under: str) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    files = [name for name in listed.stdout.split("\0") if name]
    known = list(
        dict.fromkeys(
            each
            for name in files
            if name.startswith(tuple(TESTS)) and name.startswith(under) and name.endswith(".py")
            for each in mutants(name)
        )
    )
    chosen = random.Random(seed).sample(known, min(count, len(known)))
    survived = 0
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(AT_ONCE):
            copies.put(copied(files, Path(folder) / str(number)))
        rooms = sorted({tests for mutant in chosen for tests in tests_of(mutant)})
        for tests in rooms:
            if fails(copies.queue[0], tests):
                raise click.ClickException(f"{tests} fails without any change")
        judged = pool.map(lambda mutant: is_killed(mutant, copies), chosen)
        for number, (mutant, killed) in enumerate(zip(chosen, judged, strict=True), 1):
            source = (REPOSITORY / mutant.path).read_bytes()
            line = source.count(b"\n", 0, mutant.start) + 1
            click.echo(f"{number}/{len(chosen)} {'killed' if killed else 'SURVIVED'} {mutant.path}:{line}")
            if not killed:
                survived += 1
                click.echo(mutant.diff(source))
    click.echo(f"{len(chosen) - survived} of {len(chosen)} mutants killed (seed {seed}, of {len(known)})")


if __name__ == "__main__":
    main()
