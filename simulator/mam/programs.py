# SPDX-License-Identifier: MIT
"""The `mam-*` programs: their options, what they print, and how they end (0, or 1 with a sentence on stderr)."""

from __future__ import annotations

import fcntl
import os
import sys

from simulator.mam import records
from simulator.mam.books import Books, Refused, Row, hundredths, load_books, save_books
from simulator.mam.faults import Ending, Faults, note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import NoReturn

    Options = Mapping[str, str]
    Listing = tuple[tuple[str, ...], tuple[str, ...], Callable[[Books, Options], Iterable[Row]]]
    Change = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Callable[[Books, Options], str]]

VERSION = "9.1.1"
LISTING = ("--raw", "--quiet")


def _modify_account(books: Books, given: Options) -> str:
    changes = [word for word in ("--add-user", "--del-user", "-A", "-I") if word in given]
    if len(changes) != 1:
        raise Refused("Exactly one change is expected here")
    if changes == ["--add-user"]:
        return books.add_user(given["-a"], given["--add-user"])
    if changes == ["--del-user"]:
        return books.delete_user(given["-a"], given["--del-user"])
    return books.activate(given["-a"], active=changes == ["-A"])


LISTS: Mapping[str, Listing] = {
    "mam-list-accounts": (
        ("-a",),
        ("Name", "Active", "Users", "Organization", "Description"),
        lambda books, given: books.list_accounts(given.get("-a", "")),
    ),
    "mam-list-funds": (
        ("-a", "-u"),
        ("Id", "Constraints", "Allocated", "Balance"),
        lambda books, given: books.list_funds(given.get("-a", ""), given.get("-u", "")),
    ),
    "mam-list-users": (
        ("-a",),
        ("Name", "DefaultAccount"),
        lambda books, given: books.list_users(given.get("-a", "")),
    ),
}
# Options with a value that must be there, those that may, those without one, and what it does.
CHANGES: Mapping[str, Change] = {
    "mam-create-account": (
        ("-a",),
        ("-d", "-o"),
        (),
        lambda books, given: books.create_account(given["-a"], given.get("-d", ""), given.get("-o", "")),
    ),
    "mam-delete-account": (("-a",), (), (), lambda books, given: books.delete_account(given["-a"])),
    "mam-modify-account": (("-a",), ("--add-user", "--del-user"), ("-A", "-I"), _modify_account),
    "mam-create-fund": (("-a",), (), (), lambda books, given: books.create_fund(given["-a"])),
    "mam-delete-fund": (("-f",), (), (), lambda books, given: books.delete_fund(given["-f"])),
    "mam-deposit": (
        ("-z", "-f"),
        ("-a",),
        (),
        lambda books, given: books.deposit(given["-f"], hundredths(given["-z"])),
    ),
    "mam-withdraw": (
        ("-z", "-f"),
        (),
        (),
        lambda books, given: books.withdraw(given["-f"], hundredths(given["-z"])),
    ),
    "mam-modify-user": (
        ("-u", "-a"),
        (),
        (),
        lambda books, given: books.set_default(given["-u"], given["-a"]),
    ),
}
USAGE = "mam-list-usagerecords"
PROGRAMS = (*LISTS, *CHANGES, USAGE)


def main(program: str) -> NoReturn:
    """Run as the program of that path; its state is next to the folder that it is in."""
    bin_path, name = os.path.split(os.path.abspath(program))
    folder, words = os.path.dirname(bin_path), sys.argv[1:]
    note(folder, "begin", name, words)
    with open(f"{folder}/mam.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = _run(folder, name, words)
        sys.stdout.flush()
    note(folder, "end", name, code)
    os._exit(code)


def _run(folder: str, name: str, words: Sequence[str]) -> int:
    faults = Faults(folder, " ".join([name, *words]))
    try:
        faults.strike("before")
        lines = _answer(folder, name, words)
        faults.strike("after")
    except Ending as ending:
        sys.stdout.write(ending.stdout)
        return _said(ending.stderr, ending.code)
    except Refused as refused:
        return _said(f"{name}: {refused}\n", 1)
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0


def _said(text: str, code: int) -> int:
    sys.stderr.write(text)
    sys.stderr.flush()
    return code


def _answer(folder: str, name: str, words: Sequence[str]) -> Iterable[str]:
    """Do the work, save it, and return the lines to print."""
    if list(words) == ["--version"]:
        return [f"{name} version {VERSION}"]
    if name in CHANGES:
        needed, possible, bare, change = CHANGES[name]
        given = _options(words, (*needed, *possible), bare, needed)
        books = load_books(folder)
        said = change(books, given)
        save_books(books, folder)
        return [said]
    if name == USAGE:
        given = _options(words, ("--show", "-a", "-s", "-e"), LISTING, ("--show", "-s", "-e"))
        rows: Iterable[Row] = records.listed(folder, given.get("-a", ""), given["-s"], given["-e"])
        return _table(rows, given, ("Account", "User", "Charge"))
    possible, columns, read = LISTS[name]
    given = _options(words, ("--show", *possible), LISTING, ("--show", *LISTING))
    return _table(read(load_books(folder), given), given, columns)


def _table(rows: Iterable[Row], given: Options, columns: Sequence[str]) -> Iterable[str]:
    names = given["--show"].split(",")
    if unknown := [name for name in names if name not in columns]:
        raise Refused(f"Unknown attribute: {unknown[0]}")
    return ("|".join(row[name] for name in names) for row in rows)


def _options(
    words: Sequence[str], valued: Sequence[str], bare: Sequence[str], needed: Sequence[str]
) -> dict[str, str]:
    given: dict[str, str] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word in given:
            raise Refused(f"Option {word} is given twice")
        if word in bare:
            given[word] = ""
        elif word in valued:
            if not left or not left[0]:
                raise Refused(f"Option {word} requires an argument")
            given[word] = left.pop(0)
        else:
            raise Refused(f"Unknown option: {word}")
    if missing := [word for word in needed if word not in given]:
        raise Refused(f"Option {missing[0]} is missing")
    return given
