# SPDX-License-Identifier: MIT
"""Observation of funds for a writer: all of them, and an account's alone before it gets another one.

A list of funds that lacks one of ours would have a second one made, and the whole deposit put into it. So the account's
funds are asked for alone as well; and where a fund was made and not shown, no other one is made, in no later pass.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from pathlib import Path

from agent.core.errors import BackendError, NotApplied
from agent.host import files
from backends.moab.ledger import Fund, Ledger


class UnshownFunds:
    """Accounts that we made a fund for which MAM did not show, in a file of all writers. Used under their lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __contains__(self, account: str) -> bool:
        return account in self._accounts()

    def note(self, account: str) -> None:
        self._write({*self._accounts(), account})

    def forget(self, account: str) -> None:
        if account in (known := self._accounts()):
            self._write(known - {account})

    def _accounts(self) -> set[str]:
        try:
            with files.acting_as_owner(self._path.parent):
                return set(json.loads(self._path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return set()
        except (OSError, ValueError, TypeError) as error:
            raise BackendError(
                f"{self._path} cannot be read: {error}. See which funds MAM has, and delete it"
            ) from error

    def _write(self, accounts: Collection[str]) -> None:
        draft = self._path.with_suffix(".new")
        try:
            with files.acting_as_owner(self._path.parent):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                draft.write_text(json.dumps(sorted(accounts)), encoding="utf-8")
                os.replace(draft, self._path)
        except OSError as error:
            raise BackendError(f"{self._path} cannot be written: {error}") from error


class WrittenFunds:
    """Observe the funds that are written to.

    `read`: everything; `ask`: the own funds of one account, by its name as MAM spells it.
    """

    def __init__(
        self, read: Callable[[], Ledger], ask: Callable[[str], tuple[Fund, ...]], unshown: UnshownFunds
    ) -> None:
        self.read = read
        self._ask = ask
        self._unshown = unshown

    def refusal(self, account: str, spelled: str) -> BackendError | None:
        """Return why an account that had no fund gets none now; None where it may get one."""
        try:
            if account in self._unshown:
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
        return None

    def unshown(self, account: str) -> BackendError:
        """Note that a fund was made which the list does not have; return the error to report."""
        try:
            self._unshown.note(account)
        except BackendError as error:
            return error
        return NotApplied(f"MAM does not show the fund of account {account}")

    def shown(self, account: str) -> BackendError | None:
        try:
            self._unshown.forget(account)
        except BackendError as error:
            return error
        return None
