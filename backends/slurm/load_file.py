# SPDX-License-Identifier: MIT
"""Many new things at once: the text of a file for `sacctmgr load`, which makes them in one transaction.

10 allocations with 5 members each take 1.2 s that way and 20 s by single commands (22.05). A line that names
something that exists can change it, so the file holds new things only, and sacctmgr is asked first what it
would change: docs/slurm.md, section 3. The loader runs it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.core.actions import AddMember, ClusterAction, CreateAccount, SetLimits, only
from backends.hierarchy import levels
from backends.slurm.allowed_names import checked, free_text
from backends.slurm.costs import LOAD, LOAD_USERS

# 400 allocations held the database's locks for 30 s, and after 50 s slurmdbd ends.
ACCOUNTS_PER_FILE = 120
QUESTION = "(N/y): "
ANSWER_YES, ANSWER_NO = "y\n", "n\n"
# It was answered "no", or was not answered within 30 seconds.
DISCARDED = "Changes Discarded"
NOTHING_NEW = "Nothing new added."
NOT_NOTES = (DISCARDED, NOTHING_NEW)
EXPECTED_WORDS = "Done adding cluster"


@dataclass(frozen=True, slots=True)
class LoadFile:
    """The actions of one file, its text, its kind, by which price its load goes, and its work in units (`files`)."""

    actions: tuple[ClusterAction, ...]
    text: str
    kind: str
    units: int


def files(
    actions: Sequence[ClusterAction],
    cluster: str,
    units_at_once: Callable[[str], int] = lambda _: 2 * ACCOUNTS_PER_FILE,
    *,
    is_placed: bool = True,
) -> Iterator[LoadFile]:
    """Yield files for the actions that can be loaded, in the order in which they must be: those that make accounts,
    then those that only add users. `units_at_once` is asked before each, with its kind. A unit is a parent that gets
    new rows, as many times slurmdbd renumbers its tree (`is_placed`); else a new row.
    """
    created = only(CreateAccount, actions)
    new = {made.account: made for made in created}
    limits = {
        change.account: change
        for change in only(SetLimits, actions)
        if change.account in new and not change.on_qos
    }
    by_account: dict[str, list[AddMember]] = defaultdict(list)
    # The default account of each user who has none yet: as the policy says, else the first account they join.
    defaults: dict[str, str] = {}
    for join in filter(_only_adds, only(AddMember, actions)):
        by_account[join.account].append(join)
        if join.present_default == "":
            defaults[join.user] = join.default_account or defaults.get(join.user, join.account)
    parents = {account: made.parent for account, made in new.items()}
    in_order = (made.account for level in levels(created, parents) for made in level)
    order = list(dict.fromkeys((*in_order, *by_account)))
    while order:
        kind = LOAD if order[0] in new else LOAD_USERS
        size = _size(order, parents, by_account, units_at_once(kind), is_placed=is_placed)
        accounts, order = order[:size], order[size:]
        made = [new[account] for account in accounts if account in new]
        changes = [limits[account] for account in accounts if account in limits]
        joining = [join for account in accounts for join in by_account.get(account, ())]
        lines = [f"Cluster - '{cluster}'", *_account_lines(made, limits), *_member_lines(joining, defaults)]
        text = "\n".join(lines) + "\n"
        units = text.count("\nParent - ") if is_placed else len(made) + len(joining)
        yield LoadFile((*made, *changes, *joining), text, kind, units)


def _size(
    accounts: Sequence[str],
    parents: Mapping[str, str],
    users: Mapping[str, Sequence[AddMember]],
    at_most: int,
    *,
    is_placed: bool,
) -> int:
    """Return how many of these accounts come into the next file: either new ones or such as are there, of at most so
    many units.
    """
    units, parent = 0, ""
    for size, account in enumerate(accounts):
        if not is_placed:
            units += (account in parents) + len(users.get(account, ()))
        else:
            units += account in users
            if parents.get(account, "") != parent:
                units, parent = units + 1, parents.get(account, "")
        is_other = (account in parents) != (accounts[0] in parents)
        if size and (is_other or units > at_most or size == ACCOUNTS_PER_FILE):
            return size
    return len(accounts)


def notes(stdout: str) -> list[str]:
    """Return what a load would change about things that exist already: every line that begins with a blank."""
    lines = (line for line in stdout.split("\n") if line.startswith(" "))
    return [" ".join(line.split()) for line in lines if line.strip() not in NOT_NOTES]


def _only_adds(join: AddMember) -> bool:
    """Whether a load makes it. A present default account that must change is not an addition."""
    known = join.present_default is not None
    keeps = not join.present_default or join.default_account in ("", join.present_default)
    return known and keeps and not (join.partitions or join.qos or join.default_qos)


def _account_lines(accounts: Sequence[CreateAccount], limits: Mapping[str, SetLimits]) -> Iterator[str]:
    parent = ""
    for made in accounts:
        if made.parent != parent:
            parent = checked("account", made.parent)
            yield f"Parent - '{parent}'"
        options = [
            f"Description='{free_text(made.description, made.account)}'",
            f"Organization='{free_text(made.organization, made.account)}'",
        ]
        if (change := limits.get(made.account)) and change.after:
            values = ",".join(f"{checked('TRES', tres)}={int(value)}" for tres, value in change.after)
            options.append(f"GrpTRESMins='{values}'")
        yield f"Account - '{checked('account', made.account)}':{':'.join(options)}"


def _member_lines(joins: Sequence[AddMember], defaults: Mapping[str, str]) -> Iterator[str]:
    """Yield members by account. Unlike `add user`, a default account elsewhere needs a line for its association."""
    by_account: dict[str, list[str]] = defaultdict(list)
    for join in joins:
        by_account[join.account].append(join.user)
    for join in joins:
        default = defaults.get(join.user, "")
        if default and join.default_account == default and join.user not in by_account[default]:
            by_account[default].append(join.user)
    for account, users in by_account.items():
        if not users:
            continue
        yield f"Parent - '{checked('account', account)}'"
        for user in sorted(users):
            default = f"DefaultAccount='{checked('account', defaults[user])}':" if user in defaults else ""
            yield f"User - '{checked('user', user)}':{default}Fairshare=parent"
