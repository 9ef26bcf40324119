# SPDX-License-Identifier: MIT
"""Actions in short, and costs, for tests of the commands that they become."""

from __future__ import annotations

from agent.core.actions import (
    AddMember,
    CreateAccount,
    DeleteAccount,
    MoveDefaultAccount,
    RemoveMember,
    SetLimits,
)
from backends.base import HintsOfThisProcess
from backends.slurm.costs import UNIT, Costs


def account(name: str, parent: str = "p", description: str = "D", organization: str = "O") -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description=description, organization=organization)


def limits(name: str, **values: int) -> SetLimits:
    return SetLimits(account=name, after=tuple(values.items()))


def join(name: str, user: str, **options: object) -> AddMember:
    return AddMember(account=name, user=user, **options)  # type: ignore[arg-type]


def leave(name: str, user: str, *, default: bool = False) -> RemoveMember:
    return RemoveMember(account=name, user=user, is_default=default)


def delete(name: str, parent: str = "p") -> DeleteAccount:
    return DeleteAccount(account=name, parent=parent)


def move(user: str, before: str, after: str) -> MoveDefaultAccount:
    return MoveDefaultAccount(account=after, user=user, before=before)


def costs(rows: int, **learnt: tuple[float, float]) -> Costs:
    """Costs of a cluster where this was learnt of kinds of commands: seconds of one by itself, and of a unit."""
    memory = HintsOfThisProcess[float]()
    for name, (command_s, unit_s) in learnt.items():
        kind = name.replace("_", " ")
        memory |= {kind: command_s, kind + UNIT: unit_s}
    return Costs(lambda: rows, memory)
