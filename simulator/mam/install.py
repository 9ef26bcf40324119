# SPDX-License-Identifier: MIT
"""A stand-in MAM in a folder: its programs in `bin`, its state next to that folder, and what only its owner can do."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import simulator
from simulator.mam import records
from simulator.mam.books import Books, hundredths, load_books, save_books
from simulator.mam.faults import FAULTS_FILE, LOG_FILE
from simulator.mam.programs import PROGRAMS

# Without the site's packages and settings: a start takes 20 ms.
PYTHON = f"{sys.executable} -SE"
SCRIPT = """#!{python}
import sys
sys.path.insert(0, {root!r})
from simulator.mam.programs import main
main(__file__)
"""


class StandIn:
    """An installation of the simulated MAM."""

    def __init__(self, folder: Path, python: str = PYTHON) -> None:
        self.folder = folder
        # What `moab_bin_path` is set to.
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        self.make_programs(python)

    def make_programs(self, python: str = PYTHON) -> None:
        """Make its programs, which this command line of Python runs."""
        root = str(Path(simulator.__file__).resolve().parents[1])
        for name in PROGRAMS:
            path = self.bin / name
            path.write_text(SCRIPT.format(python=python, root=root), encoding="utf-8")
            path.chmod(0o755)

    @property
    def books(self) -> Books:
        """Return its present state."""
        return load_books(str(self.folder))

    @contextmanager
    def changed(self) -> Iterator[Books]:
        """Change its state past the agent."""
        books = self.books
        yield books
        save_books(books, str(self.folder))

    def charge(self, account: str, user: str, amount: str, when: datetime) -> None:
        """Record an ended job and charge the fund."""
        records.add(str(self.folder), [(int(when.timestamp()), account, user, amount)])
        with self.changed() as books:
            books.charge(account, hundredths(amount))

    def faults(self, *rules: Mapping[str, Any]) -> None:
        """Replace the fault rules (see `simulator.mam.faults`)."""
        (self.folder / FAULTS_FILE).write_text(json.dumps(list(rules)), encoding="utf-8")

    def watch(self) -> None:
        """Log the calls from now on."""
        (self.folder / LOG_FILE).write_text("", encoding="utf-8")

    def log(self) -> list[list[Any]]:
        """Return rows of pid, `begin` or `end`, program, and its arguments or exit code."""
        path = self.folder / LOG_FILE
        return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

    def calls(self) -> list[str]:
        """Return the command lines of the calls so far."""
        return [" ".join([name, *words]) for _, what, name, words in self.log() if what == "begin"]

    def writes(self) -> list[str]:
        return [line for line in self.calls() if not line.startswith("mam-list-")]

    def add_records(self, rows: Iterable[tuple[int, str, str, str]]) -> None:
        """Add usage records without charging a fund."""
        records.add(str(self.folder), rows)
