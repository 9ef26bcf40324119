# SPDX-License-Identifier: MIT
"""The one file that the agent remembers things in: SQLite, errors as sentences.

Each transaction has a connection of its own, so that a store survives forks and threads; a pass, with dozens of them,
keeps one open for its thread (`kept_open`), which a fork of that thread closes. Modules take a `Source`: a store, or
the open transaction of one, so that several of them may read and write in one transaction.
A damaged file is never replaced: pauses, approvals and budgets would be forgotten without notice.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from agent.core.errors import StateBusy, StateError, StateUnreadable, StateUnwritable
from agent.host import files
from agent.state import mounts
from agent.state.schema import APPLICATION_ID, MIGRATIONS, OLDEST, VERSION, statements

log = logging.getLogger(__name__)

NAME = "state.sqlite3"
BUSY_S = 10.0
# Where the journal is newer than the last write of the store by more than this, the store is an old copy.
COPIED_BACK_AFTER = timedelta(hours=1)
KEPT_UP_WITHIN = timedelta(minutes=10)
# A clock that is ahead has written what cannot be.
AHEAD_AT_MOST = timedelta(minutes=1)
JOURNAL = Path("journal", "journal.jsonl")
# What audit hooks hear before each transaction, with the path of the file.
AUDITED = "waldur_site_cluster.transaction"
# Bytes of the smallest page.
SMALLEST = 512

Value = str | int | float | bytes | None
Result = TypeVar("Result")


class _Row(sqlite3.Row):
    """A row whose columns are ours, or the file is damaged: names of columns are bytes in it as well."""

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except IndexError:
            raise StateUnreadable(
                f"the state file is damaged (it has no column {key}): {MOVE_ASIDE}"
            ) from None


class Db:
    """An open transaction. `is_writing`: it may change something."""

    def __init__(self, connection: sqlite3.Connection, path: Path, *, is_writing: bool) -> None:
        self.path = path
        self.is_writing = is_writing
        self._connection = connection

    def rows(self, sql: str, *values: Value) -> list[sqlite3.Row]:
        """Run one statement and return its rows. Raises StateError."""
        found = self.raw_rows(sql, *values)
        if any(isinstance(value, bytes) for row in found for value in row):
            raise StateUnreadable(_damaged(self.path, "it has bytes where no agent writes any"))
        return found

    def raw_rows(self, sql: str, *values: Value) -> list[sqlite3.Row]:
        """Run one statement and return its rows, which may have bytes. Raises StateError."""
        with _sentences(self.path, is_writing=self.is_writing):
            found: list[sqlite3.Row] = self._connection.execute(sql, tuple(map(_storable, values))).fetchall()
        return found

    def row(self, sql: str, *values: Value) -> sqlite3.Row | None:
        """Return the first row, None where there is none. Raises StateError."""
        found = self.rows(sql, *values)
        return found[0] if found else None

    def run(self, sql: str, *values: Value) -> int:
        """Run one statement and return how many rows it changed. Raises StateError."""
        with _sentences(self.path):
            return self._connection.execute(sql, tuple(map(_storable, values))).rowcount

    def run_many(self, sql: str, rows: Iterable[tuple[Value, ...]]) -> None:
        """Run one statement for each of the rows. Raises StateError."""
        with _sentences(self.path):
            self._connection.executemany(sql, (tuple(map(_storable, row)) for row in rows))


class _Kept(threading.local):
    """What a thread keeps for the state file."""

    path: Path | None = None
    # One that no transaction has now.
    connection: sqlite3.Connection | None = None
    # What the connection is to; None: to an empty file in memory, for there was none.
    file: os.stat_result | None = None

    def is_at(self, path: Path) -> bool:
        """Return whether the file at the path is the one that the connection is to."""
        if self.connection is None or self.file is None or self.path != path:
            return False
        try:
            return os.path.samestat(self.file, os.lstat(path))
        except OSError:
            return False

    def take(self, file: os.stat_result | None) -> sqlite3.Connection | None:
        """Return the connection, None where there is none to this file."""
        is_it = os.path.samestat(file, self.file) if file and self.file else file is self.file
        if not is_it:
            self.close()
        connection, self.connection = self.connection, None
        return connection

    def give(self, connection: sqlite3.Connection, file: os.stat_result | None) -> None:
        self.close()  # that of a transaction inside of this one
        self.connection, self.file = connection, file

    def close(self) -> None:
        """Close the connection with the rights of the folder's owner: the last one that is closed writes the file, and
        removes its log.
        """
        if self.connection is None or self.path is None:
            return
        with ExitStack() as rights:
            # Where they cannot be had any more it is closed all the same.
            with suppress(StateError, OSError):
                rights.enter_context(files.acting_as_owner(self.path.parent))
            _close(self.connection)
        self.connection = None


_kept = _Kept()
# Neither side of a fork may use or close what the other has open: https://www.sqlite.org/howtocorrupt.html, 2.6
os.register_at_fork(before=_kept.close)


@contextmanager
def kept_open(state_dir: Path) -> Iterator[None]:
    """Let the transactions of this thread in the body have one connection, one after the other: opening it takes a
    hundred times as long as a read. One that fails, or finds another file at the path, is the last of a connection.

    Whoever opens and closes the state file itself in the body, in this process, drops SQLite's locks on it:
    https://www.sqlite.org/howtocorrupt.html (2.2)
    """
    if _kept.path is not None:
        yield
        return
    _kept.path = Store(state_dir).path
    try:
        yield
    finally:
        _kept.close()
        _kept.path = None


@dataclass(frozen=True, slots=True)
class Store:
    """The state file of a folder. Every method raises StateError; nothing of sqlite3 leaves it."""

    state_dir: Path
    name: str = NAME
    busy_s: float = BUSY_S
    path: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Joined once for the dozens of times that a transaction asks; a frozen dataclass takes it in no other way.
        object.__setattr__(self, "path", self.state_dir / self.name)

    @contextmanager
    def read(self) -> Iterator[Db]:
        """Open the file for one consistent look. Where there is none, it is as if an empty one were there."""
        with self._as_owner(), self._connection(is_writing=False) as connection:
            with _sentences(self.path, is_writing=False):
                connection.execute("PRAGMA query_only = 1")
                connection.execute("BEGIN")
            yield Db(connection, self.path, is_writing=False)

    @contextmanager
    def write(self) -> Iterator[Db]:
        """Open the file, made where it is missing, for one transaction that is written at the end, or not at all.

        Writers wait for each other. What was committed survives a kill, and the loss of power. Whoever is called in the
        body and writes, too, is given the transaction: with the store it would wait for itself.

        A file that was deleted or replaced since keeps nothing, and no other writer out: that is an error, too.
        """
        with self._as_owner():
            with _os_sentences(self.path):
                files.make_folder(self.state_dir)
                found = self._found()
            if found is None:
                self._make()
            with _os_sentences(self.path):
                opened = os.lstat(self.path)
            with self._connection(is_writing=True) as connection:
                db = Db(connection, self.path, is_writing=True)
                db.run("PRAGMA query_only = 0")
                db.run("BEGIN IMMEDIATE")
                _note_write(db)
                yield db
                self._refuse_replaced(opened)
                db.run("COMMIT")
                self._refuse_replaced(opened)

    @contextmanager
    def _as_owner(self) -> Iterator[None]:
        sys.audit(AUDITED, str(self.path))
        # A file that is open on a local disk and still at the path is on that disk.
        network = "" if _kept.is_at(self.path) else mounts.network_type(self.state_dir)
        if network:
            raise StateUnreadable(on_network(self.state_dir, network))
        with ExitStack() as stack:
            with _os_sentences(self.path):
                stack.enter_context(files.acting_as_owner(self.state_dir))
            yield

    @contextmanager
    def _connection(self, *, is_writing: bool) -> Iterator[sqlite3.Connection]:
        """Lend the connection that this thread keeps, else one for the body. No transaction outlives the body."""
        with _os_sentences(self.path, is_writing=is_writing):
            file = self._found()
        is_gone = is_writing and file is None
        keeps = not is_gone and _kept.path == self.path and self.busy_s == BUSY_S
        connection = _kept.take(file) if keeps else None
        with _sentences(self.path, is_writing=is_writing):
            if connection is not None:
                _current(connection, self.path)
            elif file is None and not is_writing:
                connection = _new_empty()
            else:
                try:
                    connection = _current(self._connected(self.path), self.path)
                except sqlite3.OperationalError as error:
                    if is_writing or not _is_obstacle(error):
                        raise
                    connection, keeps = _current(_obstructed(self.path), self.path), False
            if is_writing:
                _in_wal(connection, self.busy_s)
        has_failed = True
        try:
            yield connection
            has_failed = False
        finally:
            _roll_back(connection)
            if keeps and not has_failed:
                _kept.give(connection, file)
            else:
                _close(connection)

    def _refuse_replaced(self, opened: os.stat_result) -> None:
        """Raise StateUnwritable where another file, or none, is at the path of the one that was opened."""
        with suppress(OSError):
            if os.path.samestat(opened, os.lstat(self.path)):
                return
        raise StateUnwritable(
            f"the state file {self.path} was deleted or replaced while it was written: what was to be written is lost. "
            "Stop the agent before state_dir is deleted, moved or restored (docs/state.md)"
        )

    def _connected(self, path: Path) -> sqlite3.Connection:
        """Connect to the file. Raises sqlite3.Error."""
        uri = f"{_uri(path)}?mode=rw"
        return _set_up(sqlite3.connect(uri, uri=True, timeout=self.busy_s, isolation_level=None))

    def _found(self) -> os.stat_result | None:
        """Return what is known of the file, None where there is none. Raises OSError, and StateUnreadable for what
        cannot be a state file.
        """
        try:
            found = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            _refuse_leftovers(self.path)
            return None
        if not stat.S_ISREG(found.st_mode):
            raise StateUnreadable(f"{self.path} is not a plain file: {MOVE_ASIDE}")
        if found.st_size < SMALLEST:
            # SQLite would take some of these for new files, and fill them.
            raise StateUnreadable(_damaged(self.path, f"it has {found.st_size} bytes"))
        return found

    def _make(self) -> None:
        """Put a whole file there at once: a process that is killed never leaves one without tables."""
        made = self.path.with_name(f".{self.name}.{os.getpid()}.{time.monotonic_ns()}.new")
        try:
            with _os_sentences(self.path):
                os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with _sentences(self.path):
                connection = self._connected(made)
                _empty().backup(connection)
                # The log of changes comes last: what is in it only would be missing in the file that is linked.
                _close(_in_wal(_current(connection, self.path), self.busy_s))
            with _os_sentences(self.path):
                try:
                    os.link(made, self.path)
                except FileExistsError:
                    return  # another process was first
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    made.with_name(made.name + suffix).unlink()


Source = Path | Store | Db
"""What the modules of this room take: a `state_dir`, its store, or an open transaction."""


@contextmanager
def reading(source: Source) -> Iterator[Db]:
    """Use the transaction that is open, else open one for the body. Raises StateError."""
    if isinstance(source, Db):
        yield source
    else:
        with _store(source).read() as db:
            yield db


@contextmanager
def writing(source: Source) -> Iterator[Db]:
    """Use the transaction that is open, else open one that is committed after the body. Raises StateError."""
    if isinstance(source, Db):
        yield source
    else:
        with _store(source).write() as db:
            yield db


def note(source: Source, what: str, work: Callable[[Db], object]) -> bool:
    """Write down a hint. False, with a warning, where that is not possible: it never stops a pass.

    In a transaction that is open already its owner hears of it, as StateError.
    """
    try:
        with writing(source) as db:
            work(db)
    except StateError as error:
        if isinstance(source, Db):
            raise
        log.warning("%s cannot be written down: %s", what, error)
        return False
    return True


def recall(source: Source, what: str, work: Callable[[Db], Result]) -> Result | None:
    """Read a hint; None, with a warning, where that is not possible."""
    try:
        with reading(source) as db:
            return work(db)
    except StateError as error:
        if isinstance(source, Db):
            raise
        log.warning("%s cannot be read: %s", what, error)
        return None


def stamp(moment: datetime) -> str:
    """Return a moment as people and JSON read it, in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_text(moment: datetime) -> str:
    """Return a moment as it is stored: UTC, of one width, so that texts compare as the moments do."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment_from(text: str) -> datetime:
    return datetime.fromisoformat(text)


def is_copied_back(db: Db) -> bool:
    """Return whether the file is an old copy that a person put back: approvals in it may have been used or revoked
    since.

    Seen by the journal, which has gone on, at the first write after that, and noted until `forget_copied_back`.
    """
    found = db.row("SELECT written, copied_back FROM store")
    return found is not None and bool(found["copied_back"] or _is_older_than_journal(db, found["written"]))


def forget_copied_back(db: Db) -> None:
    """Note that what follows from it was done."""
    db.run("UPDATE store SET copied_back = '', written = ?", moment_text(datetime.now(UTC)))


def keep_up(state_dir: Path) -> None:
    """Write the time into a state file that has not been written for a while, before the journal goes on: a file that
    is much older than the journal is an old copy. Where it cannot be written this is skipped.
    """
    store = Store(state_dir)
    try:
        if not store.path.exists():
            return
        with store.read() as db:
            found = db.row("SELECT written FROM store")
        oldest = moment_text(datetime.now(UTC) - KEPT_UP_WITHIN)
        # A clock that is right again, too, writes anew.
        newest = moment_text(datetime.now(UTC) + AHEAD_AT_MOST)
        if found is None or not oldest <= found["written"] <= newest:
            with Store(state_dir, busy_s=0).write():
                pass
    except (StateError, OSError) as error:
        log.debug("the state file does not keep up with the journal: %s", error)


def on_network(folder: Path, network: str) -> str:
    return (
        f"state_dir {folder} is on a network file system ({network}): locks do not hold there between hosts and the "
        "state file would be damaged. Set state_dir to a folder on a local disk of this head node"
    )


MOVE_ASIDE = (
    "nothing is changed on the cluster until it can be read. Restore a copy from a backup, or move it aside together "
    "with the files of the same name that end in -wal and -shm: held plans, approvals, pauses and budgets are then "
    "forgotten (docs/state.md)"
)


def _damaged(path: Path, why: object) -> str:
    return f"the state file {path} is damaged ({why}): {MOVE_ASIDE}"


def _store(source: Path | Store) -> Store:
    return source if isinstance(source, Store) else _of_folder(source)


# A pass asks for dozens of transactions of one folder.
_of_folder = lru_cache(maxsize=16)(Store)


@cache
def _empty() -> sqlite3.Connection:
    """Return a file without records that is in memory, to be copied: making its tables takes many times as long."""
    made = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    return _current(_set_up(made), Path(":memory:"))


def _new_empty() -> sqlite3.Connection:
    copied = sqlite3.connect(":memory:", isolation_level=None)
    _empty().backup(copied)
    return _set_up(copied)


def _obstructed(path: Path) -> sqlite3.Connection:
    """Open where files next to it cannot be made: a full disk, a read-only folder. Raises sqlite3.Error.

    With the lock of a writer if there is a log of changes, which is read without shared memory then; without any lock
    where all that is written is in the file itself.
    """
    wal = path.with_name(f"{path.name}-wal")
    if not (wal.is_file() and wal.stat().st_size):
        alone = sqlite3.connect(f"{_uri(path)}?mode=ro&immutable=1", uri=True, isolation_level=None)
        return _set_up(alone)
    connection = sqlite3.connect(f"{_uri(path)}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return _set_up(connection)


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    with ExitStack() as unless_usable:
        unless_usable.callback(_close, connection)
        connection.row_factory = _Row
        connection.execute("PRAGMA foreign_keys = 1")
        # What a person approved and what was charged must outlive a loss of power as well: each commit is synced.
        connection.execute("PRAGMA synchronous = FULL")
        unless_usable.pop_all()
    return connection


def _current(connection: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Bring the file to the version of this agent.

    Raises sqlite3.Error, and StateUnreadable for a version that is newer, or older than any that is read.
    """
    with ExitStack() as unless_usable:
        unless_usable.callback(_close, connection)
        version = _version(connection)
        if version > VERSION:
            raise StateUnreadable(
                f"the state file {path} is of version {version}, and this agent knows {VERSION}: a newer agent has "
                f"written it. Install that one again, or: {MOVE_ASIDE}"
            )
        if version and version < OLDEST:
            raise StateUnreadable(
                f"the state file {path} is of version {version}, and this agent reads versions from {OLDEST}: an agent "
                f"from before the first release has written it. It stays as it is, and {MOVE_ASIDE}"
            )
        if version < VERSION:
            _migrate(connection, path)
        unless_usable.pop_all()
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the tables up to date; the process that comes first does it."""
    connection.execute("BEGIN EXCLUSIVE")
    version = _version(connection)
    is_strange = not version and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if is_strange:
        raise StateUnreadable(f"{path} is a database of another program: {MOVE_ASIDE}")
    for script in MIGRATIONS[version - OLDEST + 1 :] if version else MIGRATIONS:
        for statement in statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _in_wal(connection: sqlite3.Connection, busy_s: float) -> sqlite3.Connection:
    """Set WAL, so that readers do not wait for writers. SQLite itself does not wait for this. Raises sqlite3.Error."""
    deadline_s = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return connection
        except sqlite3.Error as error:
            if _primary(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline_s:
                _close(connection)
                raise
            time.sleep(0.01)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _note_write(db: Db) -> None:
    now = moment_text(datetime.now(UTC))
    if is_copied_back(db):
        db.run("UPDATE store SET copied_back = ? WHERE copied_back = ''", now)
    db.run("UPDATE store SET written = ?", now)


def _is_older_than_journal(db: Db, written: str) -> bool:
    try:
        changed = datetime.fromtimestamp((db.path.parent / JOURNAL).stat().st_mtime, UTC)
    except OSError:
        return False
    if not written or changed > datetime.now(UTC) + AHEAD_AT_MOST:
        return False
    return changed - moment_from(written) > COPIED_BACK_AFTER


def _refuse_leftovers(path: Path) -> None:
    """Raise StateUnreadable where a log is left: SQLite would take it for one of the new file."""
    wal = path.with_name(f"{path.name}-wal")
    if wal.is_file() and wal.stat().st_size and not path.exists():
        raise StateUnreadable(
            f"{path} is gone and {wal.name} is left: put both back, or move it aside as well"
        )


def _close(connection: sqlite3.Connection) -> None:
    try:
        connection.close()
    except sqlite3.Error as error:
        log.debug("the state file was not closed in order: %s", error)


def _roll_back(connection: sqlite3.Connection) -> None:
    """Roll back what was not committed. SQLite has done so already after some errors."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    except sqlite3.Error as error:
        log.debug("the state file was not rolled back in order: %s", error)


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _storable(value: Value) -> Value:
    """Return text that is not Unicode (names of users that another program made) with escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


@contextmanager
def _sentences(path: Path, *, is_writing: bool = True) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise _meaning(error, path, is_writing=is_writing) from error
    except UnicodeDecodeError as error:
        # Damaged names of tables and columns, which sqlite3 cannot put into its own error.
        raise StateUnreadable(_damaged(path, "it has text that is not UTF-8")) from error


@contextmanager
def _os_sentences(path: Path, *, is_writing: bool = True) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = f"{error.filename}: " if error.filename and str(error.filename) != str(path) else ""
        kind = StateUnwritable if is_writing else StateUnreadable
        said = f"{place}{error.strerror or error}{files.how_to_act(path.parent, error)}"
        raise kind(f"the state file {path} cannot be used: {said}") from error


def _meaning(error: sqlite3.Error, path: Path, *, is_writing: bool) -> StateError:
    """Return what an error says of the file. What is neither its lock nor its folder is damage: all statements are our
    own, and sqlite3 gives no code to text that is not UTF-8.
    """
    code = _primary(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StateBusy(
            f"another process has been writing to {path} for over {BUSY_S:.0f} s; `fuser {path}` names it. Passes try "
            "again by themselves"
        )
    if code == sqlite3.SQLITE_FULL:
        return StateUnwritable(f"the state file {path} cannot be written: the disk is full")
    if _is_obstacle(error) and is_writing:
        todo = files.how_to_act(path.parent, error) or ". Is the disk full, or the folder read-only?"
        return StateUnwritable(f"the state file {path} cannot be written: {error}{todo}")
    if _is_obstacle(error) or code in (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT):
        todo = files.how_to_act(path.parent, error)
        return StateUnreadable(f"the state file {path} cannot be read: {error}{todo}")
    return StateUnreadable(_damaged(path, error))


def _is_obstacle(error: sqlite3.Error) -> bool:
    """Return whether the folder is at fault (rights, room) and not what the file holds."""
    return _primary(error) in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    )


def _primary(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
