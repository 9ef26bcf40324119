# SPDX-License-Identifier: MIT
"""Observation of funds for a writer: all of them, and an account's alone before it gets another one.

A list of funds that lacks one of ours would have a second one made, and the whole deposit put into it. So the account's
funds are asked for alone as well; and where a fund was made and is not listed, no other one is made, in no later pass.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.core.errors import BackendError, NotApplied, StateError
from backends.base import AccountMarks
from backends.moab.ledger import Fund, Ledger


class WrittenFunds:
    """Observe the funds that are written to.

    `read`: everything; `ask`: the own funds of one account, by its name as MAM spells it; `unlisted`: accounts that we
    made a fund for which MAM did not show, used under the lock of all writers.
    """

    def __init__(
        self, read: Callable[[], Ledger], ask: Callable[[str], tuple[Fund, ...]], unlisted: AccountMarks
    ) -> None:
        self.read = read
        self._ask = ask
        self._unlisted = unlisted

    def refusal(self, account: str, spelled: str) -> BackendError | None:
        """Return why an account that had no fund gets none now; None where it may get one."""
        try:
            if account in self._unlisted:
                return BackendError(
                    f"a fund was made for account {account}, and MAM does not show it: no other one is made. Look at "
                    f"`mam-list-funds -a {spelled}`; if there is none, make it by hand (mam-create-fund -a {spelled})"
                )
            if funds := self._ask(spelled):
                return NotApplied(
                    f"the list of all funds lacks fund {funds[0].id} of account {account}: nothing is deposited by it"
                )
        except BackendError as error:
            return error
        except StateError as error:
            return _unknown(account, error)
        return None

    def mark_unlisted(self, account: str) -> BackendError:
        """Note that a fund was made which the list does not have; return the error to report."""
        try:
            self._unlisted.add(account)
        except StateError as error:
            return BackendError(
                f"MAM does not show the fund that was made for account {account}, and that cannot be written down: "
                f"{error}. Look at `mam-list-funds` before anything else is deposited there"
            )
        return NotApplied(f"MAM does not show the fund of account {account}")

    def mark_listed(self, account: str) -> BackendError | None:
        try:
            self._unlisted.discard(account)
        except StateError as error:
            return _unknown(account, error)
        return None


def _unknown(account: str, error: StateError) -> BackendError:
    return BackendError(f"whether a fund was made for account {account} before is unknown: {error}")
