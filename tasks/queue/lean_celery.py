# SPDX-License-Identifier: MIT
"""The same `celery worker` in 26 MB less: `tasks.app` starts a worker over again through this module; `cluster` and the
demo start worker and beat by it at once (`python -m tasks.queue.lean_celery -A tasks worker`), in half the time.

Celery's command line imports every command that there is before it knows which one is wanted: Flower with tornado,
a shell with prompt_toolkit, and pygments to colour answers. Requests imports tables to guess how a text is encoded,
which JSON never needs; billiard imports cffi where that is installed, and takes ctypes elsewhere. Each process of the
pool would keep them in memory.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from agent.host import collector

# What follows the interpreter to run this module, in one word: it takes the place of a program's path. Celery starts
# itself again by that (SIGHUP), and would not find the project by the path of this file.
PROGRAM = "-mtasks.queue.lean_celery"
# Read when a process starts. Every thread of a pass would keep a heap of its own, at its largest; the columns of
# tracebacks cost 0.5 MB.
MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072", "PYTHONNODEBUGRANGES": "1"}
COMMANDS = ("click_repl", "flower")
UNUSED = (*COMMANDS, "pygments", "chardet", "charset_normalizer", "opentelemetry", "cffi")


def become(words: Sequence[str], interpreter_words: Sequence[str]) -> None:
    """Go on as this module, under the same pid, when this process is a worker that Celery's own command started.

    `words`: sys.argv; `interpreter_words`: sys.orig_argv. Returns when there is nothing to gain.
    """
    program = getattr(sys.modules["__main__"], "__file__", None)
    if program != words[0] or not is_worker(words[1:]):
        return
    if not any(name in sys.modules for name in COMMANDS):
        return
    flags = list(interpreter_words[1 : len(interpreter_words) - len(words)])
    if flags[-1:] == ["-m"]:
        flags.pop()
    for name, value in MEMORY.items():
        os.environ.setdefault(name, value)
    os.execv(sys.executable, [sys.executable, *flags, PROGRAM, *words[1:]])  # noqa: S606  (ourselves)


def is_worker(words: Sequence[str]) -> bool:
    """Return whether these words start a worker, and would mean the same a second time."""
    return "worker" in words and not any(word.startswith("--workdir") for word in words)


class _Unused(MetaPathFinder):
    """Prevents the import of these. Celery lists Flower's command as broken then, which no worker looks at; requests
    takes a text of an unknown encoding for UTF-8.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in UNUSED:
            raise ImportError(f"{name} is of no use to a worker")
        return None


def _no_shell(_group: object) -> None:
    """Replace click_repl's function, which Celery calls while it is imported."""


def shut_out() -> None:
    """Have this process do without what is of no use to a worker; called before anything of it is imported."""
    sys.meta_path.insert(0, _Unused())
    warnings.filterwarnings("ignore", message="Unable to find acceptable character detection dependency")
    shell = ModuleType("click_repl")
    shell.__dict__["register_repl"] = _no_shell
    sys.modules["click_repl"] = shell


def main() -> None:
    shut_out()
    sys.argv[0] = PROGRAM
    collector.rest()
    from celery.__main__ import main as celery

    celery()


if __name__ == "__main__":
    main()
