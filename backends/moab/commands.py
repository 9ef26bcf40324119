# SPDX-License-Identifier: MIT
"""Commands that change MAM, as argv after the program's name; and those of a whole plan, for people. Pure.

A command names one account, user or fund: MAM has no form for several that could be relied on (9.1).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

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
from agent.core.errors import BackendError, PlanRefused
from backends.moab import deposits
from backends.moab.allowed_names import checked, free_text
from backends.moab.components import DEPOSIT
from backends.moab.ledger import Ledger

Words = tuple[str, ...]
Argv = Callable[[Words], Sequence[str]]


# The kinds of actions that MAM has commands for, in the order in which a batch runs.
ORDER: tuple[type[ClusterAction], ...] = (
    CreateAccount,
    SetLimits,
    AddMember,
    MoveDefaultAccount,
    AllowSubmission,
    BlockSubmission,
    RemoveMember,
    DeleteAccount,
)


class NotInMoab(BackendError):
    """MAM has nothing of the kind: an operator must remove what asks for it, and no account is at fault."""

    of_host = True


def check(action: ClusterAction) -> None:
    """Check that there is a command for it. Raises NotInMoab, and PlanRefused for an impossible name or limit."""
    if type(action) not in ORDER:
        raise NotInMoab(f"MOAB Accounting Manager has no command to {action.verb}")
    for name, holder in action.identifiers.items():
        checked(name, getattr(action, holder))
    match action:
        case CreateAccount():
            checked("account", action.parent)
        case SetLimits():
            wanted_deposit(action)
        case AddMember() if action.partitions or action.qos:
            raise NotInMoab("MOAB Accounting Manager has neither partitions nor QoS")


def create_account(action: CreateAccount, default_account: str) -> Words:
    """Name the account above as the organization; at the top the account is its own."""
    organization = action.account if action.parent == default_account else action.parent
    description = free_text(action.description, action.account)
    return ("mam-create-account", "-a", action.account, "-d", description, "-o", organization)


def create_fund(account: str) -> Words:
    return ("mam-create-fund", "-a", account)


def move(account: str, fund: int | str, amount: Decimal) -> Words:
    """Return a deposit, or a withdrawal of what is below zero."""
    if amount < 0:
        return ("mam-withdraw", "-z", deposits.printed(amount), "-f", str(fund))
    return ("mam-deposit", "-a", account, "-z", deposits.printed(amount), "-f", str(fund))


def add_user(account: str, user: str) -> Words:
    """`+`: an active member."""
    return ("mam-modify-account", "--add-user", f"+{user}", "-a", account)


def delete_user(account: str, user: str) -> Words:
    return ("mam-modify-account", "--del-user", user, "-a", account)


def set_default(account: str, user: str) -> Words:
    return ("mam-modify-user", "-u", user, "-a", account)


def activate(account: str, *, active: bool) -> Words:
    return ("mam-modify-account", "-A" if active else "-I", "-a", account)


def delete_fund(fund: int) -> Words:
    return ("mam-delete-fund", "-f", str(fund))


def delete_account(account: str) -> Words:
    return ("mam-delete-account", "-a", account)


def wanted_deposit(action: SetLimits) -> int:
    """Return the amount. Raises PlanRefused where the action asks for anything else."""
    limits = dict(action.after)
    if unknown := sorted(set(limits) - {DEPOSIT}):
        raise PlanRefused(
            f"MOAB keeps no limit of {', '.join(unknown)} for account {action.account}: {DEPOSIT} is the only one"
        )
    if limits.get(DEPOSIT, 0) < 0:
        raise PlanRefused(f"the deposit of account {action.account} cannot be {limits[DEPOSIT]}")
    return limits[DEPOSIT]


def as_shell_lines(
    actions: Sequence[ClusterAction], ledger: Ledger, argv: Argv, default_account: str
) -> list[str]:
    """Return what `apply` would run for these actions in this state, each as a shell takes it. `argv`: words as they
    are run.
    """
    made = {a.account for a in only(CreateAccount, actions) if a.account not in ledger.accounts}
    preview = _Preview(ledger, argv, default_account, frozenset(made))
    return [line for kind in ORDER for action in only(kind, actions) for line in preview.lines(action)]


@dataclass(frozen=True, slots=True)
class _Preview:
    """Command lines for what MAM holds now, and the accounts that are being made in it."""

    ledger: Ledger
    argv: Argv
    default_account: str
    made: frozenset[str]

    def lines(self, action: ClusterAction) -> Iterator[str]:
        name, spelled = action.account, self.ledger.spelled(action.account)
        users = self.ledger.users_of(name)
        match action:
            case CreateAccount():
                if name in self.made:
                    yield self._line(create_account(action, self.default_account))
                    yield self._line(create_fund(name))
            case SetLimits():
                yield from self._deposit(action)
            case AddMember(user=user):
                if user not in users:
                    yield self._line(add_user(spelled, user))
            case MoveDefaultAccount(user=user):
                yield self._line(set_default(spelled, users.get(user, user)))
            case AllowSubmission() | BlockSubmission():
                yield self._line(activate(spelled, active=action.effect is not Effect.BLOCK))
            case RemoveMember(user=user):
                if user in users:
                    yield self._line(delete_user(spelled, users[user]))
            case DeleteAccount():
                yield from (self._line(delete_fund(fund.id)) for fund in self.ledger.funds_of(name))
                yield self._line(delete_account(spelled))
            case _:
                raise NotInMoab(f"MOAB has no command to {action.verb}")

    def _deposit(self, action: SetLimits) -> Iterator[str]:
        """The fund of an account that is being made has no number yet: the shell asks for it."""
        account, wanted = self.ledger.spelled(action.account), wanted_deposit(action)
        funds = self.ledger.funds_of(action.account)
        if funds:
            for each in deposits.moves(funds, wanted).moves:
                yield self._line(move(account, each.fund, each.amount))
            return
        if action.account not in self.made:
            yield self._line(create_fund(account))
        if wanted:
            listed = self._line(("mam-list-funds", "--raw", "--quiet", "--show", "Id,Constraints"))
            own = shlex.quote(f"own=Account={account}")
            deposit = self._line(move(account, "", Decimal(wanted))[:-1])
            yield f"{deposit} \"$({listed} | awk -F'|' -v {own} '$2 == own {{print $1}}')\""

    def _line(self, words: Words) -> str:
        return shlex.join(self.argv(words))
