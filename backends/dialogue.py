# SPDX-License-Identifier: MIT
"""A program that runs on and answers: one line in, one line out, each answer within a deadline.

It ends with the last reference to its Dialogue; when we are killed, the end of its input is the sign for it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from agent.core.errors import AnswerTooSlow, BackendUnavailable
from agent.core.printable import ended_as, printable

CHUNK_BYTES = 1 << 16
# A line of stderr that is longer goes to the log in parts.
LOGGED_CHARACTERS = 1000
LOGGED_LINES = 200
REST_CHUNKS = 16
ENDING_S = 5.0
ENDING_PAUSE_S = 0.01


class Ended(BackendUnavailable):
    """The program ended before it answered."""


class Dialogue:
    """Talks with `child`, which leads a session and has pipes for all three streams.

    `name`: what errors call it. `log`: gets each line that it prints on stderr, at most LOGGED_LINES for a question.
    """

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        name: str,
        log: Callable[[str], None],
        *,
        answer_limit_bytes: int,
    ) -> None:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        self._child, self._name, self._log = child, name, log
        self._limit = answer_limit_bytes
        self._owner = os.getpid()
        self._input, self._output, self._errors = (
            stream.fileno() for stream in (child.stdin, child.stdout, child.stderr)
        )
        os.set_blocking(self._input, False)
        self._lines = 0
        # A line of stderr that has not ended, and the last lines.
        self._begun = b""
        self.said: deque[str] = deque(maxlen=5)
        self.end = weakref.finalize(self, _end, child, self._owner)

    @property
    def is_open(self) -> bool:
        """Return whether it is ours: a fork of us has the pipes of the same program."""
        return self.end.alive and self._owner == os.getpid()

    def ask(self, question: str, timeout_s: float) -> str:
        """Return the answer. Raises AnswerTooSlow, Ended, and BackendUnavailable for what is no answer; then the
        program is ended.
        """
        self._lines = 0
        self.said.clear()
        try:
            return self._exchange(question.encode() + b"\n", time.monotonic() + timeout_s, timeout_s)
        except BaseException:
            self.end()
            raise

    def _exchange(self, pending: bytes, deadline_s: float, timeout_s: float) -> str:
        heard = bytearray()
        ready = select.poll()
        ready.register(self._input, select.POLLOUT)
        ready.register(self._output, select.POLLIN)
        ready.register(self._errors, select.POLLIN)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise AnswerTooSlow(
                    f"{self._name} gave no answer within {timeout_s:.0f} s{self._last_words()}"
                )
            for stream, _ in ready.poll(left_s * 1000):
                if stream == self._input:
                    if not (pending := self._sent(pending)):
                        ready.unregister(stream)
                elif chunk := os.read(stream, CHUNK_BYTES):
                    if stream == self._errors:
                        self._hear(chunk)
                        continue
                    heard += chunk
                elif stream == self._errors:
                    ready.unregister(stream)
                else:
                    raise self._ended(cut=bool(heard))
            if len(heard) > self._limit:
                raise BackendUnavailable(f"{self._name} answered with more than {self._limit} bytes")
            line, line_break, more = heard.partition(b"\n")
            if more:
                raise BackendUnavailable(f"{self._name} gave more than one answer to one question")
            if line_break:
                self._hear_rest()
                return line.decode("utf-8", "replace")

    def _sent(self, pending: bytes) -> bytes:
        """Return what of a question is still to be sent. That the program has ended, its output will show."""
        try:
            return pending[os.write(self._input, pending) :]
        except BlockingIOError:
            return pending
        except BrokenPipeError:
            return b""

    def _hear_rest(self) -> None:
        """Log what it had printed before it answered, as far as that has an end."""
        ready = select.poll()
        ready.register(self._errors, select.POLLIN)
        for _ in range(REST_CHUNKS):
            if not ready.poll(0) or not (chunk := os.read(self._errors, CHUNK_BYTES)):
                break
            self._hear(chunk)

    def _hear(self, chunk: bytes) -> None:
        *lines, self._begun = (self._begun + chunk).split(b"\n")
        if len(self._begun) > LOGGED_CHARACTERS:
            lines.append(self._begun)
            self._begun = b""
        for line in lines:
            text = printable(line[:LOGGED_CHARACTERS].decode("utf-8", "replace").rstrip())
            if not text:
                continue
            self.said.append(text)
            self._lines += 1
            if self._lines <= LOGGED_LINES:
                self._log(text)
            elif self._lines == LOGGED_LINES + 1:
                self._log("it prints more, which is not logged")

    def _ended(self, *, cut: bool) -> Ended:
        deadline_s = time.monotonic() + ENDING_S
        # It is not waited for here: until it is killed its number must be no other's.
        while not self._has_exited() and time.monotonic() < deadline_s:
            time.sleep(ENDING_PAUSE_S)
        self._hear_rest()
        self.end()
        where = "in the middle of its answer" if cut else "before it answered"
        return Ended(f"{self._name} {ended_as(self._child.returncode)} {where}{self._last_words()}")

    def _has_exited(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _last_words(self) -> str:
        return f": {' / '.join(self.said)}" if self.said else ""


def _end(child: subprocess.Popen[bytes], owner: int) -> None:
    """Kill a program that is not needed any more, with all it started; in a fork of its owner only close the pipes."""
    if owner == os.getpid():
        # Before it is waited for: until then its number is no other's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream:
            with suppress(OSError):
                stream.close()
