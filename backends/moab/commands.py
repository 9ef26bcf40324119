# SPDX-License-Identifier: MIT
"""The commands that change MAM, as argv after the program's name; and those of a whole plan, for people. Pure.

A command names one account, user or fund: MAM has no form for several that could be relied on (9.1).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agent.core.actions import (
    AddMember,
    AllowSubmission,
    BlockSubmission,
    ClusterAction,
    CreateAccount,
    DeleteAccount,
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


class NotInMoab(BackendError):
    """MAM has nothing of the kind: an operator must remove what asks for it, and no account is at fault."""

    of_host = True


def check(action: ClusterAction) -> None:
    """Whether there is a command for it. Raises NotInMoab, and PlanRefused for a name or a limit that cannot be."""
    if type(action) not in SHOWN:
        raise NotInMoab(f"MOAB Accounting Manager has no command to {action.verb}")
    for name, holder in action.identifiers.items():
        checked(name, getattr(action, holder))
    if further := CHECKS.get(type(action)):
        further(action)


def create_account(action: CreateAccount, default_account: str) -> Words:
    """What it stands below is its organization; at the top it is its own."""
    organization = action.account if action.parent == default_account else action.parent
    description = free_text(action.description, action.account)
    return ("mam-create-account", "-a", action.account, "-d", description, "-o", organization)


def create_fund(account: str) -> Words:
    return ("mam-create-fund", "-a", account)


def move(account: str, fund: int | str, amount: Decimal) -> Words:
    """A deposit, or a withdrawal of what is below zero."""
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


def shown(actions: Sequence[ClusterAction], ledger: Ledger, argv: Argv, default_account: str) -> list[str]:
    """What `apply` would run for these actions in this state, each as a shell takes it."""
    made = {a.account for a in only(CreateAccount, actions) if a.account not in ledger.accounts}
    picture = _Picture(ledger, argv, default_account, frozenset(made))
    return [line for kind in ORDER for action in only(kind, actions) for line in SHOWN[kind](picture, action)]


@dataclass(frozen=True, slots=True)
class _Picture:
    """What MAM holds, and what is being made in it; `argv`: words as they are run."""

    ledger: Ledger
    argv: Argv
    default_account: str
    made: frozenset[str]

    def line(self, words: Words) -> str:
        return shlex.join(self.argv(words))

    def spelled(self, action: ClusterAction) -> str:
        return self.ledger.spelled(action.account)

    def user(self, action: RemoveMember | MoveDefaultAccount) -> str | None:
        return self.ledger.users_of(action.account).get(action.user)


def _shown_account(now: _Picture, action: CreateAccount) -> Iterator[str]:
    if action.account in now.made:
        yield now.line(create_account(action, now.default_account))
        yield now.line(create_fund(action.account))


def _shown_limits(now: _Picture, action: SetLimits) -> Iterator[str]:
    """The fund of an account that is being made has no number yet: the shell asks for it."""
    account, wanted = now.spelled(action), wanted_deposit(action)
    funds = now.ledger.funds_of(action.account)
    if funds:
        for each in deposits.moves(funds, wanted).moves:
            yield now.line(move(account, each.fund, each.amount))
        return
    if action.account not in now.made:
        yield now.line(create_fund(account))
    if wanted:
        listed = now.line(("mam-list-funds", "--raw", "--quiet", "--show", "Id,Constraints"))
        own = shlex.quote(f"own=Account={account}")
        deposit = now.line(move(account, "", Decimal(wanted))[:-1])
        yield f"{deposit} \"$({listed} | awk -F'|' -v {own} '$2 == own {{print $1}}')\""


def _shown_member(now: _Picture, action: AddMember) -> Iterator[str]:
    if action.user not in now.ledger.users_of(action.account):
        yield now.line(add_user(now.spelled(action), action.user))


def _shown_default(now: _Picture, action: MoveDefaultAccount) -> Iterator[str]:
    yield now.line(set_default(now.spelled(action), now.user(action) or action.user))


def _shown_removal(now: _Picture, action: RemoveMember) -> Iterator[str]:
    if user := now.user(action):
        yield now.line(delete_user(now.spelled(action), user))


def _shown_deletion(now: _Picture, action: DeleteAccount) -> Iterator[str]:
    yield from (now.line(delete_fund(fund.id)) for fund in now.ledger.funds_of(action.account))
    yield now.line(delete_account(now.spelled(action)))


def _joins_whole(action: AddMember) -> None:
    if action.partitions or action.qos:
        raise NotInMoab("MOAB Accounting Manager has neither partitions nor QoS")


def wanted_deposit(action: SetLimits) -> int:
    """Raises PlanRefused where it asks for anything else."""
    limits = dict(action.after)
    if unknown := sorted(set(limits) - {DEPOSIT}):
        raise PlanRefused(
            f"MOAB keeps no limit of {', '.join(unknown)} for account {action.account}: {DEPOSIT} is the only one"
        )
    if limits.get(DEPOSIT, 0) < 0:
        raise PlanRefused(f"the deposit of account {action.account} cannot be {limits[DEPOSIT]}")
    return limits[DEPOSIT]


# What else must be right about an action, beside its names.
CHECKS: Mapping[type[ClusterAction], Callable[[Any], object]] = {
    CreateAccount: lambda action: checked("account", action.parent),
    AddMember: _joins_whole,
    SetLimits: wanted_deposit,
}
# The command lines of each kind of action that MAM knows.
SHOWN: Mapping[type[ClusterAction], Callable[[_Picture, Any], Iterable[str]]] = {
    CreateAccount: _shown_account,
    SetLimits: _shown_limits,
    AddMember: _shown_member,
    MoveDefaultAccount: _shown_default,
    AllowSubmission: lambda now, action: [now.line(activate(now.spelled(action), active=True))],
    BlockSubmission: lambda now, action: [now.line(activate(now.spelled(action), active=False))],
    RemoveMember: _shown_removal,
    DeleteAccount: _shown_deletion,
}
ORDER = sorted(SHOWN, key=lambda kind: kind.phase)
