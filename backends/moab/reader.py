# SPDX-License-Identifier: MIT
"""Reading MAM: each list whole, in one command, however many accounts there are; joined to one snapshot.

MAM keeps accounts and not jobs: there is none to be cancelled before a member is removed. Where the site has us
leave default accounts alone, every user counts as one whose default is elsewhere, so that no plan moves one.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from agent.core.associations import Association, Associations
from agent.core.errors import ParseError
from agent.core.model import Account, Part, Snapshot
from backends.base import Scope
from backends.moab import parse
from backends.moab.components import DEPOSIT
from backends.moab.ledger import Fund, Ledger
from backends.moab.programs import Programs, answer
from backends.moab.schema import MoabSettings
from backends.process import Runner

log = logging.getLogger(__name__)

IN_THE_LISTS = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS})
# What is the same on every MAM: one kind of limit, and no QoS.
GIVEN = frozenset({Part.TRES, Part.QOS})


class Reader:
    """The lists of accounts, funds and users."""

    def __init__(self, settings: MoabSettings, runner: Runner, programs: Programs) -> None:
        self._settings = settings
        self._runner = runner
        self._programs = programs

    def ledger(self) -> Ledger:
        """Return all accounts and all funds, in two commands. Raises BackendError."""
        ledger = self._lists()
        self._doubt(ledger, None)
        return ledger

    def funds_of(self, account: str) -> tuple[Fund, ...]:
        """Return the account's own funds, asked for alone. Raises BackendError."""
        return parse.funds(self._read((*self._programs.funds, "-a", account))).get(account, ())

    def users(self) -> dict[str, str]:
        """Default accounts of all users, "" for none. Raises BackendError."""
        return parse.default_accounts(self._read(self._programs.users))

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        parts = scope.parts & IN_THE_LISTS
        ledger, defaults = Ledger(), None
        if parts or scope.usage_of:
            listed = None
            with ThreadPoolExecutor(max_workers=2) as pool:
                lists = pool.submit(self._lists)
                if Part.DEFAULT_ACCOUNTS in parts and self._settings.manage_default_accounts:
                    listed = self.users()
                ledger = lists.result()
            self._doubt(ledger, listed)
            if Part.DEFAULT_ACCOUNTS in parts:
                defaults = self._defaults(ledger, listed)
        return self._snapshot(scope, ledger, defaults)

    def _lists(self) -> Ledger:
        with ThreadPoolExecutor(max_workers=2) as pool:
            accounts = pool.submit(lambda: parse.accounts(self._read(self._programs.accounts)))
            funds = pool.submit(self._read, self._programs.funds)
            listed = accounts.result()
            return Ledger(listed, parse.funds(funds.result()), parse.uncounted(funds.result()))

    def _doubt(self, ledger: Ledger, listed: dict[str, str] | None) -> None:
        """Raises ParseError where an empty list of accounts cannot be all there is: with funds of accounts, or without
        any user, who are looked for then.
        """
        if ledger.accounts:
            return
        for owner, funds in ledger.funds.items():
            problem = (
                f"it is empty, and fund {funds[0].id} is of account {owner}. If that is so, delete the fund"
            )
            raise ParseError("mam-list-accounts", "", problem)
        if listed is None:
            self.users()

    def _snapshot(self, scope: Scope, ledger: Ledger, defaults: dict[str, str] | None) -> Snapshot:
        complete = scope.parts & GIVEN
        if scope.parts & IN_THE_LISTS:
            complete |= {Part.ACCOUNTS, Part.ASSOCIATIONS}
        complete |= {Part.DEFAULT_ACCOUNTS} if defaults is not None else set()
        complete |= {Part.JOBS} if scope.jobs_of else set()
        complete |= {Part.USAGE} if scope.usage_of else set()
        return Snapshot(
            cluster=self._settings.cluster_name,
            accounts={name: self._account(ledger, name) for name in ledger.accounts},
            associations=Associations(
                Association(name, user) for name, account in ledger.accounts.items() for user in account.users
            ),
            default_accounts=defaults or {},
            tres=frozenset({DEPOSIT}) if Part.TRES in complete else frozenset(),
            active_jobs=dict.fromkeys(scope.jobs_of, 0),
            used={name: used for name in scope.usage_of if (used := ledger.used(name))},
            complete=frozenset(complete),
        )

    def _account(self, ledger: Ledger, name: str) -> Account:
        return Account(
            name=name,
            parent=ledger.parent(name) or self._settings.default_account,
            limits=ledger.limits(name),
            submit_limit=None if ledger.accounts[name].active else 0,
            least=ledger.least(name),
            remarks=ledger.remarks(name),
        )

    def _defaults(self, ledger: Ledger, listed: dict[str, str] | None) -> dict[str, str] | None:
        """Default accounts that their user is in; None where a member is no user of the list: then it is not whole."""
        members = {user for account in ledger.accounts.values() for user in account.users}
        if listed is None:
            return dict.fromkeys(members, self._settings.default_account)
        if unlisted := sorted(members - listed.keys()):
            log.warning(
                "mam-list-users omits %s (%s in all) who are members of accounts: the default accounts are "
                "taken as not read",
                unlisted[0],
                len(unlisted),
            )
            return None
        return {user: account for user, account in listed.items() if user in ledger.users_of(account)}

    def _read(self, command: tuple[str, ...]) -> str:
        return answer(self._runner.read(command))
