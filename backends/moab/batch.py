# SPDX-License-Identifier: MIT
"""One batch of actions: the commands of each, one after the other, and what became of it.

What a command that failed has done is read back: the lists decide, not its words ("already there" is done), and where
they cannot be read that is an outage, after which nothing more is tried.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agent.core.actions import (
    AddMember,
    AllowSubmission,
    BlockSubmission,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
    Effect,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
    only,
)
from agent.core.errors import BackendError, BackendUnavailable, DoneInPart, NotApplied, NotEmpty
from agent.core.plans import Outcome
from backends.command_output import one_line
from backends.failure_propagation import FailurePropagation
from backends.hierarchy import in_order
from backends.lock import WriteLock
from backends.moab import commands, deposits
from backends.moab.commands import Words
from backends.moab.components import DEPOSIT
from backends.moab.ledger import Ledger, total
from backends.moab.programs import Programs, failure
from backends.moab.written_funds import WrittenFunds
from backends.process import CommandMissing, CommandTooLong, Runner

log = logging.getLogger(__name__)

Holds = Callable[[Ledger], bool]


@dataclass(slots=True)
class Attempt:
    """One action under way, and what was run for it."""

    action: ClusterAction
    commands: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    def ended(self, error: BackendError | None) -> Outcome:
        return Outcome(self.action, error, tuple(self.commands), self.duration_s)


class LockedCommands:
    """Runs commands under the lock of all writers, and notes on each attempt what was run."""

    def __init__(self, runner: Runner, programs: Programs, lock: WriteLock) -> None:
        self._runner = runner
        self._programs = programs
        self._lock = lock

    def run(self, attempt: Attempt, words: Words) -> BackendError | None:
        try:
            completed = self._runner.write((self._programs.path(words[0]), *words[1:]), self._lock)
        except (CommandMissing, CommandTooLong) as error:
            return error
        line = " ".join(completed.argv)
        attempt.commands.append(line)
        attempt.duration_s += completed.duration_s
        failed = failure(completed)
        if failed is None and completed.stderr.strip():
            log.warning("`%s` said: %s", line, one_line(completed.stderr))
        return failed


class Batch:
    """Everything that one call of `apply` does. Raises BackendError where MAM cannot be read at the beginning."""

    def __init__(self, locked: LockedCommands, written_funds: WrittenFunds, default_account: str) -> None:
        self._locked = locked
        self._written_funds = written_funds
        self._default_account = default_account
        self._failures = FailurePropagation()
        self._ledger = written_funds.read()
        self._stood = frozenset(self._ledger.accounts)
        # Accounts that got a fund here.
        self._funded: set[str] = set()
        # Accounts that were changed since the ledger was read.
        self._touched: set[str] = set()

    def carried_out(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        outcomes = []
        parents = {name: self._ledger.parent(name) for name in self._ledger.accounts}
        ordered = in_order(actions, parents)
        for kind in commands.ORDER:
            of_kind = [action for action in ordered if type(action) is kind]
            steps = (
                self._create(only(CreateAccount, of_kind)) if kind is CreateAccount else self._each(of_kind)
            )
            for outcome in steps:
                self._failures.note(outcome)
                outcomes.append(outcome)
        return outcomes

    def _each(self, actions: Sequence[ClusterAction]) -> Iterator[Outcome]:
        for action in actions:
            if stopped := self._failures.error_for(action):
                yield Outcome(action, stopped)
            else:
                attempt = Attempt(action)
                yield attempt.ended(STEPS[type(action)](self, attempt, action))

    def _in_account(
        self, attempt: Attempt, words: Words, holds: Holds = lambda _: False
    ) -> BackendError | None:
        """One command in an account that must be there still."""
        name = attempt.action.account
        if name not in self._ledger.accounts:
            return NotApplied(f"account {name} is not in MAM any more")
        return self._run(attempt, words, holds)

    # Accounts -------------------------------------------------------------------------------------

    def _create(self, actions: Sequence[CreateAccount]) -> Iterator[Outcome]:
        """All accounts, then the funds of those that MAM has not made one for by itself."""
        made: list[Attempt] = []
        for action in actions:
            attempt = Attempt(action)
            if stopped := self._failures.error_for(action):
                yield Outcome(action, stopped)
            elif error := self._make_account(attempt, action):
                yield attempt.ended(error)
            else:
                made.append(attempt)
        unread = self._look() if self._touched else None
        for attempt in made:
            yield attempt.ended(unread or self._make_fund(attempt))

    def _make_account(self, attempt: Attempt, action: CreateAccount) -> BackendError | None:
        name = action.account
        if name in self._ledger.accounts:
            return None
        if funds := self._ledger.funds_of_deleted(name):
            listed = ", ".join(f"{fund.id} ({fund.balance} left of {fund.allocated})" for fund in funds)
            return BackendError(
                f"account {name} cannot be made: MAM has funds of an account of this name that is gone: {listed}. "
                "Delete them (mam-delete-fund -f) or make the account by hand, so that it gets no funds of another one"
            )
        words = commands.create_account(action, self._default_account)
        return self._run(attempt, words, lambda ledger: name in ledger.accounts)

    def _make_fund(self, attempt: Attempt) -> BackendError | None:
        name = attempt.action.account
        if self._ledger.funds_of(name):
            return None
        spelled = self._ledger.spelled(name)
        if name in self._stood and (error := self._written_funds.refusal(name, spelled)):
            return error
        error = self._run(attempt, commands.create_fund(spelled), lambda ledger: bool(ledger.funds_of(name)))
        self._funded |= {name} if error is None else set()
        return error

    def _delete(self, attempt: Attempt, action: DeleteAccount) -> BackendError | None:
        """Its funds first: without its account a fund may be open to everybody, and no later pass would look for it."""
        name = action.account
        if error := self._look() if self._touched else None:
            return error
        ledger = self._ledger
        if names := sorted(ledger.key_path(name) | set(ledger.users_of(name))):
            return NotEmpty(f"account {name} is not empty: {', '.join(names[:5])} would lose access with it")
        for fund in ledger.funds_of(name):
            words = commands.delete_fund(fund.id)
            if error := self._run(attempt, words, _lacking(name, fund.id)):
                return error
        if name in ledger.accounts:
            words = commands.delete_account(ledger.spelled(name))
            if error := self._run(attempt, words, lambda now: name not in now.accounts):
                return error
        self._ledger = self._ledger.without(name)
        self._touched.discard(name)
        return None

    # Deposits -------------------------------------------------------------------------------------

    def _set_deposit(self, attempt: Attempt, action: SetLimits) -> BackendError | None:
        name, wanted = action.account, commands.wanted_deposit(action)
        if error := self._look() if name in self._touched else None:
            return error
        if name not in self._ledger.accounts:
            return NotApplied(f"account {name} is not in MAM any more")
        if not (self._ledger.funds_of(name) or name in self._funded) and (
            error := self._make_fund(attempt) or self._look()
        ):
            return error
        funds = self._ledger.funds_of(name)
        if not funds:
            return self._written_funds.mark_unlisted(name)
        if error := self._written_funds.mark_listed(name):
            return error
        held = self._ledger.limits(name)[DEPOSIT]
        before = dict(action.before).get(DEPOSIT)
        if before is not None and before <= wanted < held:
            return NotApplied(
                f"the funds of {name} were given {held} by now, more than the {wanted} that they were to be raised to: "
                "nothing is taken out of them on that account"
            )
        return self._move(attempt, deposits.moves(funds, wanted))

    def _move(self, attempt: Attempt, moves: deposits.Moves) -> BackendError | None:
        name = attempt.action.account
        expected = total(self._ledger.funds_of(name))
        for move in moves.moves:
            expected += move.amount
            words = commands.move(self._ledger.spelled(name), move.fund, move.amount)
            if error := self._run(attempt, words, _holding(name, expected)):
                return error
        if moves.missing:
            return DoneInPart(
                f"the deposit of {name} is lowered to {deposits.printed(expected)} and no further: "
                f"{deposits.printed(moves.missing)} of what should be taken out as well is spent already"
            )
        return None

    # Members --------------------------------------------------------------------------------------

    def _add(self, attempt: Attempt, action: AddMember) -> BackendError | None:
        name = action.account
        if action.user in self._ledger.users_of(name):
            return None
        words = commands.add_user(self._ledger.spelled(name), action.user)
        return self._in_account(attempt, words, lambda now: action.user in now.users_of(name))

    def _move_default(self, attempt: Attempt, action: MoveDefaultAccount) -> BackendError | None:
        user = self._ledger.users_of(action.account).get(action.user, action.user)
        return self._in_account(attempt, commands.set_default(self._ledger.spelled(action.account), user))

    def _remove(self, attempt: Attempt, action: RemoveMember) -> BackendError | None:
        user = self._ledger.users_of(action.account).get(action.user)
        if user is None:
            return None
        words = commands.delete_user(self._ledger.spelled(action.account), user)
        return self._run(attempt, words, lambda ledger: action.user not in ledger.users_of(action.account))

    def _activate(self, attempt: Attempt, action: AllowSubmission | BlockSubmission) -> BackendError | None:
        name, active = action.account, action.effect is not Effect.BLOCK
        words = commands.activate(self._ledger.spelled(name), active=active)
        return self._in_account(attempt, words, lambda now: now.accounts[name].active is active)

    def _run(self, attempt: Attempt, words: Words, holds: Holds = lambda _: False) -> BackendError | None:
        """One command. `holds`: whether a state has what it is for, by which a failure is judged."""
        error = self._locked.run(attempt, words)
        self._touched.add(attempt.action.account)
        if error is None or isinstance(error, CommandMissing | CommandTooLong):
            return error
        if unread := self._look():
            return BackendUnavailable(f"{error}; what it has done cannot be seen: {unread}")
        return None if holds(self._ledger) else error

    def _look(self) -> BackendError | None:
        """Read MAM again. What cannot be read stops everything."""
        try:
            self._ledger = self._written_funds.read()
        except BackendError as error:
            return BackendUnavailable(str(error))
        self._touched.clear()
        return None


# What each kind of action does, but for accounts that are made, which get their funds together.
STEPS: Mapping[type[ClusterAction], Callable[[Batch, Attempt, Any], BackendError | None]] = {
    SetLimits: Batch._set_deposit,
    AddMember: Batch._add,
    MoveDefaultAccount: Batch._move_default,
    AllowSubmission: Batch._activate,
    BlockSubmission: Batch._activate,
    RemoveMember: Batch._remove,
    DeleteAccount: Batch._delete,
}


def _lacking(account: str, fund: int) -> Holds:
    return lambda ledger: fund not in {each.id for each in ledger.funds_of(account)}


def _holding(account: str, amount: Decimal) -> Holds:
    return lambda ledger: total(ledger.funds_of(account)) == amount
