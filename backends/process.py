# SPDX-License-Identifier: MIT
"""Starts processes, which nothing else does: argv lists, a clean environment, time-outs, nothing inherited by accident.

Reads may be killed; one whose answer may be long hands it on line by line. A write that has begun is left to
finish: a killed `sacctmgr` left row locks that blocked every writer for minutes and ended slurmdbd (22.05). So a
write runs in a session of its own, writes its output to files that outlive us, and inherits the cluster's lock,
which therefore lasts as long as it does.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import resource
import select
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePath
from typing import IO

from agent.config.secret import MASK, MIN_SECRET_LENGTH, mask_words, secrets_in
from agent.core.errors import AnswerTooSlow, BackendError, BackendUnavailable
from agent.host.files import SHORT
from backends.lock import WriteLock

log = logging.getLogger(__name__)

READ_TIMEOUT_S = 60.0
WRITE_WARNING_S = 20.0
OUTPUT_LIMIT_BYTES = 1 << 30
CHUNK_BYTES = 1 << 18
LINE_LIMIT_BYTES = 1 << 20
READS_AT_ONCE = 4
PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "TZDIR",
    "LD_LIBRARY_PATH",
)
# They join their words with blanks and hand them to a shell on another host.
REMOTE_SHELLS = frozenset(("ssh", "autossh", "gsissh", "rsh", "dbclient", "plink", "pdsh", "clush"))


class CommandTooLong(BackendError):
    """A command has a word, or more of them, than Linux takes: nothing was started. The action of it is at fault."""


class CommandMissing(BackendError):
    """A program is not on this host."""

    of_host = True


@dataclass(frozen=True, slots=True)
class Completed:
    """Result of a command. Texts are UTF-8, undecodable bytes replaced."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    duration_s: float
    # How many were handed on before it ended, and are not in the output here.
    lines: int = 0
    # The command alone, which behind ssh is one word of all.
    words: tuple[str, ...] = ()


class Runner:
    """Starts commands for one backend. `prefix` goes before every argv (`docker exec slurmctld`).

    `keys`: the settings that say where the programs are, for messages. `passed_on`: patterns of the variables that they
    need of our environment, beyond those that every program does.
    """

    def __init__(
        self,
        *,
        prefix: Sequence[str] = (),
        keys: str = "PATH",
        passed_on: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        output_limit_bytes: int = OUTPUT_LIMIT_BYTES,
    ) -> None:
        self.executed: Counter[str] = Counter()
        self._output_limit_bytes = output_limit_bytes
        self._prefix = tuple(prefix)
        # What everybody may read: errors, logs, the journal and previews show commands by `argv` alone.
        self._masked_prefix = mask_words(self._prefix)
        self._secrets = [text for text in secrets_in(self._prefix) if len(text) >= MIN_SECRET_LENGTH]
        self._shells = _shells_behind(self._prefix)
        self._keys = keys
        self._extra, self._passed_on = environment or {}, passed_on
        self._reads = threading.BoundedSemaphore(READS_AT_ONCE)

    @cached_property
    def _environment(self) -> Mapping[str, str]:
        """Return what every child gets. A pass has runners that start nothing."""
        return clean_environment(self._extra, self._passed_on)

    @property
    def prefixed(self) -> bool:
        """Return whether commands run elsewhere (in a container): files of ours are not there."""
        return bool(self._prefix)

    def argv(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return what is started, without the passwords in the prefix. Our environment does not go through a prefix:
        `env` sets it there. ssh joins its words with blanks and gives them to a shell over there, so behind it the
        command is one word that this shell splits again.
        """
        words = tuple(command)
        if self._prefix and environment:
            words = ("env", *(f"{name}={value}" for name, value in environment.items()), *words)
        for _ in range(self._shells):
            words = (shlex.join(words),)
        return (*self._masked_prefix, *words)

    def read(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = READ_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> Completed:
        """Run a command that changes nothing. Raises BackendUnavailable when it does not end in time, BackendError
        when it prints without end. `environment` is for this call, on top of what every child gets. Interrupted while
        it waits, it kills the command; one that is just being started is left to end by itself.
        """
        argv = self.argv(command, environment)
        with self._reads, _output() as stdout, _output() as stderr:
            started_s = time.monotonic()
            child = self._start_read(argv, stdout, stderr, environment)
            try:
                child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                # Not chained: its text is the command with every word, passwords too.
                raise self._too_slow(argv, timeout_s, stderr) from None
            finally:
                _end(child)
            self._check_sizes(argv, stdout, stderr)
            return self._completed(argv, command, child, stdout, stderr, started_s)

    def lines(
        self,
        command: Sequence[str],
        *,
        timeout_s: float = READ_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        stdin_text: str = "",
    ) -> Generator[str, None, Completed]:
        """Like `read`, for an answer that may be long: its lines as they come, in memory a chunk at a time.

        What is returned at the end has the exit code, and in `stdout` only what no line break ended. Nothing that
        was yielded may count before that has been judged. Closed early, the command is killed. `stdin_text` is what
        it reads.
        """
        argv = self.argv(command, environment)
        with self._reads, _output() as stderr, _input(stdin_text) as stdin:
            started_s = time.monotonic()
            child = self._start_read(argv, subprocess.PIPE, stderr, environment, stdin)
            rest, count = b"", 0
            try:
                for chunk in _chunks(child, started_s + timeout_s):
                    whole, line_break, begun = chunk.rpartition(b"\n")
                    if line_break:
                        yield from (rest + whole).decode("utf-8", "replace").split("\n")
                        count += whole.count(b"\n") + 1
                        rest = begun
                    else:
                        rest += chunk
                    if len(rest) > LINE_LIMIT_BYTES:
                        raise BackendError(f"`{' '.join(argv)}` was stopped: it printed a line without end")
            except subprocess.TimeoutExpired:
                # Not chained: its text is the command with every word, passwords too.
                raise self._too_slow(argv, timeout_s, stderr) from None
            finally:
                _end(child)
            self._check_sizes(argv, stderr)
            return replace(
                self._completed(argv, command, child, io.BytesIO(rest), stderr, started_s), lines=count
            )

    def write(
        self,
        command: Sequence[str],
        lock: WriteLock,
        *,
        leave_after_s: float | None = None,
    ) -> Completed:
        """Run a command that changes something, under its lock, to the end however long that takes. It finds the end of
        its input at once.

        After `leave_after_s` the command is left to itself, with its lock, and BackendUnavailable is raised: for steps
        that may wait for a file system that does not answer, where nothing is lost when they end later.
        """
        argv = self.argv(command)
        with _output() as stdout, _output() as stderr, lock:
            started_s = time.monotonic()
            child = self._start(argv, stdout, stderr, keep=lock.descriptors)
            self.executed["write"] += 1
            while child.poll() is None:
                try:
                    child.wait(WRITE_WARNING_S if leave_after_s is None else leave_after_s)
                except subprocess.TimeoutExpired:
                    if leave_after_s is not None:
                        raise BackendUnavailable(
                            f"`{' '.join(argv)}` has not ended after {leave_after_s:.0f} s; it is left to finish, and "
                            "nothing like it is started before"
                        ) from None
                    _warn_of_long_write(argv, started_s)
            return self._completed(argv, command, child, stdout, stderr, started_s)

    def write_after_question(
        self, command: Sequence[str], lock: WriteLock, question: str, answer: Callable[[str, str], str]
    ) -> Completed:
        """Run a write that asks `question` on stdout before it changes anything permanently. `answer` returns the line
        that it gets, for what it has said until then on stdout and stderr.

        Its input and output are pipes, unlike those of `write`: when we end before the answer, it must not find the end
        of its input, for which sacctmgr asks without end (22.05); it ends at the broken pipe, and has changed nothing.
        Raises BackendError when it prints without end.
        """
        argv = self.argv(command)
        with _output() as stderr, lock:
            started_s = time.monotonic()
            child = self._start(argv, subprocess.PIPE, stderr, stdin=subprocess.PIPE, keep=lock.descriptors)
            self.executed["write"] += 1
            assert child.stdin
            assert child.stdout
            said, wanted = bytearray(), question.encode()
            # Closing the input reports a broken pipe where the command ended without reading its answer.
            with child.stdout, suppress(BrokenPipeError), child.stdin:
                ready = select.poll()
                ready.register(child.stdout, select.POLLIN)
                while len(said) < self._output_limit_bytes:
                    if not ready.poll(WRITE_WARNING_S * 1000):
                        _warn_of_long_write(argv, started_s)
                    elif chunk := os.read(child.stdout.fileno(), CHUNK_BYTES):
                        said += chunk
                        if wanted and wanted in said:
                            child.stdin.write(
                                answer(said.decode("utf-8", "replace"), self._said(stderr)).encode()
                            )
                            child.stdin.flush()
                            wanted = b""
                    else:
                        break
            child.wait()
            if len(said) >= self._output_limit_bytes:
                raise BackendError(f"`{' '.join(argv)}` was stopped: it printed {len(said)} bytes and more")
            return self._completed(argv, command, child, io.BytesIO(said), stderr, started_s)

    def start_dialogue(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program that runs on, for `backends.dialogue`. It shall change nothing: it is killed in the end."""
        pipe = subprocess.PIPE
        child = self._start(self.argv(command), pipe, pipe, stdin=pipe, environment=environment)
        self.executed["read"] += 1
        return child

    def _start_read(
        self,
        argv: Sequence[str],
        stdout: IO[bytes] | int,
        stderr: IO[bytes],
        environment: Mapping[str, str] | None,
        stdin: IO[bytes] | None = None,
    ) -> subprocess.Popen[bytes]:
        child = self._start(argv, stdout, stderr, stdin=stdin, environment=environment)
        self.executed["read"] += 1
        limit = self._output_limit_bytes
        # Behind a setuid prefix (sudo) a process of another user is not ours to limit: it is read unlimited.
        with suppress(OSError):
            resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (limit, limit))
        return child

    def _check_sizes(self, argv: Sequence[str], *streams: IO[bytes]) -> None:
        limit = self._output_limit_bytes
        if max(os.fstat(stream.fileno()).st_size for stream in streams) >= limit:
            raise BackendError(f"`{' '.join(argv)}` was stopped: it printed {limit} bytes and more")

    def _start(
        self,
        argv: Sequence[str],
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int,
        *,
        stdin: IO[bytes] | int | None = None,
        keep: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [*self._prefix, *argv[len(self._prefix) :]],
                stdin=stdin or subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**self._environment, **(environment or {})},
                start_new_session=True,
                pass_fds=keep,
            )
        except OSError as error:
            if error.errno in SHORT:
                raise _short(f"cannot start `{argv[0]}`", error) from error
            if error.errno == errno.E2BIG:
                raise CommandTooLong(
                    f"cannot start `{argv[0]}`: {error.strerror} ({sum(map(len, argv))} characters in {len(argv)} "
                    "words, the longest of them begins with "
                    f"{max(argv, key=len)[:80]!r}). No setting is wrong: a name or text is too long for a command"
                ) from error
            raise CommandMissing(
                f"cannot start `{argv[0]}`: {error.strerror}. Check {self._keys}, and that this "
                "host is the head node."
            ) from error

    def _too_slow(self, argv: Sequence[str], timeout_s: float, stderr: IO[bytes]) -> AnswerTooSlow:
        said = self._said(stderr).strip() or "no words"
        return AnswerTooSlow(f"`{' '.join(argv)}` gave no answer within {timeout_s:.0f} s: {said}")

    def _completed(
        self,
        argv: tuple[str, ...],
        command: Sequence[str],
        child: subprocess.Popen[bytes],
        stdout: IO[bytes],
        stderr: IO[bytes],
        started_s: float,
    ) -> Completed:
        duration_s = time.monotonic() - started_s
        done = Completed(
            argv, child.returncode, _text(stdout), self._said(stderr), duration_s, words=tuple(command)
        )
        log.debug("`%s` ended with %s in %.2f s", " ".join(argv), done.returncode, done.duration_s)
        return done

    def _said(self, stderr: IO[bytes]) -> str:
        """Return what a command said, without passwords: sudo repeats the command that it refuses."""
        text = _text(stderr)
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return text


def _warn_of_long_write(argv: Sequence[str], started_s: float) -> None:
    log.warning(
        "still waiting for `%s` after %.0f s: a write is never killed. Ctrl-C is safe: the command goes on by itself, "
        "no other one begins before it ends, and the next pass sees what it did",
        " ".join(argv),
        time.monotonic() - started_s,
    )


def clean_environment(extra: Mapping[str, str], passed_on: Sequence[str] = ()) -> dict[str, str]:
    """Return the environment of children: no SACCT_FORMAT, SLURM_TIME_FORMAT or locale of ours can change what they
    print.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or any(fnmatchcase(name, pattern) for pattern in passed_on)
    }
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC", **extra}


def _shells_behind(prefix: Sequence[str]) -> int:
    """Count the shells that split a command again on its way: one for each ssh or the like, behind whatever wrapper.
    Counted rather too often (a container called ssh), for then the command is not found over there, where too seldom
    would let a name run as a command.
    """
    programs = [PurePath(word).name for word in prefix]
    # What follows ssh at once is a host, whatever its name.
    pairs = zip(["", *programs], programs, strict=False)
    return sum(program in REMOTE_SHELLS and before not in REMOTE_SHELLS for before, program in pairs)


def _output() -> IO[bytes]:
    """A file without a name: no pipe that breaks when we die before the child does. In memory: on a full disk
    sacctmgr ends with 0 and half of its answer (22.05 does not look at what its writes return).
    """
    try:
        return os.fdopen(os.memfd_create("output", os.MFD_CLOEXEC), "w+b")
    except OSError as error:
        raise _short("cannot keep the output of a command", error) from error


def _short(what: str, error: OSError) -> BackendUnavailable:
    return BackendUnavailable(
        f"{what}: {error.strerror}. This host is short of open files, processes or memory (see `ulimit -a` and the "
        "limits of the unit); tried again later"
    )


def _input(text: str) -> IO[bytes]:
    stream = _output()
    stream.write(text.encode())
    stream.flush()
    stream.seek(0)
    return stream


def _chunks(child: subprocess.Popen[bytes], deadline_s: float) -> Iterator[bytes]:
    """Yield what a child prints until it has ended. Raises TimeoutExpired when it has not by the deadline."""
    assert child.stdout
    with child.stdout as stream:
        ready = select.poll()
        ready.register(stream, select.POLLIN)
        while True:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 or not ready.poll(left_s * 1000):
                raise subprocess.TimeoutExpired(child.args, left_s)
            chunk = os.read(stream.fileno(), CHUNK_BYTES)
            if not chunk:
                break
            yield chunk
    child.wait(max(0.0, deadline_s - time.monotonic()))


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a reader that is still there, with all it started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
