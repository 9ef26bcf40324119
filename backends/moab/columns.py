# SPDX-License-Identifier: MIT
"""Whether this MAM has the columns that are asked for. Releases and sites differ in them, and MAM then refuses the
whole list: so each is asked for alone, to name it to the operator.
"""

from __future__ import annotations

from collections.abc import Iterator

from backends.command_output import one_line
from backends.moab import parse
from backends.moab.programs import Programs, is_denied
from backends.process import Completed, Runner

LISTS = {
    "accounts": parse.ACCOUNT_COLUMNS,
    "funds": parse.FUND_COLUMNS,
    "users": parse.USER_COLUMNS,
    "usagerecords": parse.USAGE_COLUMNS,
}
# Of usage records as good as none: who asks wants to know of the columns.
MOMENT = ("-s", "2000-01-01T00:00:00", "-e", "2000-01-01T00:00:00")


def missing(runner: Runner, programs: Programs) -> Iterator[str]:
    """Yield a sentence for each column that MAM refuses while it shows others of that list. Raises BackendError where
    a program is not there or does not end.
    """
    for what, columns in LISTS.items():
        if _read(runner, programs, what, columns).returncode == 0:
            continue
        answers = {column: _read(runner, programs, what, (column,)) for column in columns}
        refused = {
            column: found for column, found in answers.items() if found.returncode and not is_denied(found)
        }
        if len(refused) < len(columns):
            for column, found in refused.items():
                yield (
                    f"mam-list-{what} does not show the column {column} here: `{' '.join(found.argv)}` ended with "
                    f"{found.returncode}: {one_line(found.stderr or found.stdout) or 'no output'}. Nothing can be read "
                    "without it"
                )


def _read(runner: Runner, programs: Programs, what: str, columns: tuple[str, ...]) -> Completed:
    moment = MOMENT if what == "usagerecords" else ()
    return runner.read((*programs.listing(what, columns), *moment))
