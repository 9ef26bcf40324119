# SPDX-License-Identifier: MIT
"""The commands that change MAM, as argv after the program's name; and those of a whole plan, for people. Pure.

A command names one account, user or fund: MAM has no form for several that could be relied on (9.1).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal

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
)
from agent.core.errors import BackendError, PlanRefused
from backends.moab import deposits
from backends.moab.components import DEPOSIT
from backends.moab.ledger import Ledger
from backends.moab.names import checked, free_text

Words = tuple[str, ...]
Argv = Callable[[Words], Sequence[str]]

# The order in which kinds of changes run: builders first, removals last.
KINDS: tuple[type[ClusterAction], ...] = (
    CreateAccount, SetLimits, AddMember, MoveDefaultAccount, AllowSubmission, BlockSubmission, RemoveMember,
    DeleteAccount,
)  # fmt: skip


class NotInMoab(BackendError):
    """MAM has nothing of the kind: an operator must take the wish for it away, and no account is at fault."""

    of_host = True


def check(action: ClusterAction) -> None:
    """Whether there is a command for it. Raises NotInMoab, and PlanRefused for a name or a limit that cannot be."""
    if not isinstance(action, KINDS):
        raise NotInMoab(f"MOAB Accounting Manager has no command to {action.verb}")
    checked("account", action.account)
    if isinstance(action, CreateAccount):
        checked("account", action.parent)
    if isinstance(action, AddMember | RemoveMember | MoveDefaultAccount):
        checked("user", action.user)
    if isinstance(action, AddMember) and (action.partitions or action.qos):
        raise NotInMoab("MOAB Accounting Manager has neither partitions nor QoS")
    if isinstance(action, SetLimits):
        wanted_deposit(action)


def create_account(action: CreateAccount, home: str) -> Words:
    """What it stands below is its organization; at the top it is its own."""
    organization = action.account if action.parent == home else action.parent
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


def shown(actions: Sequence[ClusterAction], ledger: Ledger, argv: Argv, home: str) -> list[str]:
    """What `apply` would run for these actions in this state, each as a shell takes it."""
    made = {a.account for a in actions if isinstance(a, CreateAccount) and a.account not in ledger.accounts}
    found: list[str] = []
    for kind in KINDS:
        for action in actions:
            if isinstance(action, SetLimits) and kind is SetLimits:
                found += _shown_limits(action, ledger, argv, is_made=action.account in made)
            elif isinstance(action, kind):
                found += [shlex.join(argv(words)) for words in _single(action, ledger, home)]
    return found


def _shown_limits(action: SetLimits, ledger: Ledger, argv: Argv, *, is_made: bool) -> Iterator[str]:
    """The fund of an account that is being made has no number yet: the shell asks for it."""
    account, wanted = ledger.spelled(action.account), wanted_deposit(action)
    funds = ledger.funds_of(action.account)
    if funds:
        for each in deposits.moves(funds, wanted).moves:
            yield shlex.join(argv(move(account, each.fund, each.amount)))
        return
    if not is_made:
        yield shlex.join(argv(create_fund(account)))
    if wanted:
        listed = shlex.join(argv(("mam-list-funds", "--raw", "--quiet", "--show", "Id,Constraints")))
        own = shlex.quote(f"own=Account={account}")
        deposit = shlex.join(argv(move(account, "", Decimal(wanted))[:-1]))
        yield f"{deposit} \"$({listed} | awk -F'|' -v {own} '$2 == own {{print $1}}')\""


def _single(action: ClusterAction, ledger: Ledger, home: str) -> Iterator[Words]:
    account = ledger.spelled(action.account)
    match action:
        case CreateAccount() if action.account not in ledger.accounts:
            yield create_account(action, home)
            yield create_fund(action.account)
        case AddMember() if action.user not in ledger.users_of(action.account):
            yield add_user(account, action.user)
        case MoveDefaultAccount():
            yield set_default(account, ledger.users_of(action.account).get(action.user, action.user))
        case AllowSubmission() | BlockSubmission():
            yield activate(account, active=isinstance(action, AllowSubmission))
        case RemoveMember() if user := ledger.users_of(action.account).get(action.user):
            yield delete_user(account, user)
        case DeleteAccount():
            yield from (delete_fund(fund.id) for fund in ledger.funds_of(action.account))
            yield delete_account(account)


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
