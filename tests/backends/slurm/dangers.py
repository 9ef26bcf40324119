# SPDX-License-Identifier: MIT
"""A cluster that holds every danger, what is asked of it, and what it answers with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.core.actions import AddMember, ClusterAction, CreateAccount, DeleteAccount, SetLimits, SetQos
from agent.core.model import Part, Snapshot
from backends.base import Scope
from backends.slurm.backend import SlurmBackend
from rig.slurm_cluster import SlurmCluster
from tests.backends.conftest import Connect

WORLD = """\
Cluster - 'test'
Parent - 'root'
Account - 'top'
Parent - 'top'
Account - 'kids'
Account - 'full'
Account - 'home'
Account - 'limited':GrpTRESMins='cpu=60,mem=2048'
Account - 'special'
Account - 'ghost'
Account - 'going'
Account - 'jobs'
Parent - 'kids'
Account - 'kid'
Parent - 'kid'
User - 'zoe':Fairshare=parent
Parent - 'full'
User - 'amy':DefaultAccount='home':Fairshare=parent
User - 'bob':Fairshare=parent
Parent - 'going'
User - 'kim':DefaultAccount='going':Fairshare=parent
User - 'lou':Fairshare=parent
User - 'sue':Fairshare=parent
Parent - 'home'
User - 'amy':DefaultAccount='home':Fairshare=parent
User - 'ann':Fairshare=parent
User - 'kim':DefaultAccount='going':Fairshare=parent
User - 'lou':DefaultAccount='home':Fairshare=parent
Parent - 'jobs'
User - 'root':Fairshare=parent
"""
# What a file cannot say.
COMMANDS = (
    "add qos name=fast,slow",
    "modify account where name=special set qos=normal,fast defaultqos=fast",
)

TREE_PARTS = Scope(frozenset({Part.ACCOUNTS, Part.DEFAULT_ACCOUNTS}))


def sacctmgr(slurm: SlurmCluster, line: str) -> tuple[int, str, str]:
    done = slurm.run("sacctmgr", "-i", *(word.replace("_", " ") for word in line.split()))
    return done.returncode, done.stdout, done.stderr


def lines(snapshot: Snapshot) -> set[str]:
    """All that a cluster holds, one fact a line; what is as usual is omitted."""
    found = {
        f"{a.user} in {a.account}{f' on {a.partition}' * bool(a.partition)}" for a in snapshot.associations
    }
    found |= {f"{user} defaults to {account}" for user, account in snapshot.default_accounts.items()}
    found |= {
        f"{row.user} in {row.account} QoS {','.join(sorted(own.names))}"
        f"{f' default {own.default}' if own.default else ''}"
        for row, own in snapshot.member_qos.items()
    }
    for account in snapshot.accounts.values():
        found.add(f"{account.name} below {account.parent}")
        found |= {f"{account.name} {tres}={value}" for tres, value in account.limits.items()}
        if account.submit_limit is not None:
            found.add(f"{account.name} submits {account.submit_limit}")
        if account.qos - {"normal"} or account.default_qos:
            found.add(f"{account.name} QoS {','.join(sorted(account.qos))} default {account.default_qos}")
    return found


class World:
    """One cluster for all rows; remembers what it held after the last one."""

    def __init__(
        self, slurm: SlurmCluster, connect: Connect, tree: str = WORLD, commands: Iterable[str] = COMMANDS
    ) -> None:
        self.slurm = slurm
        self.backend: SlurmBackend = connect()
        path = Path(slurm.folder) / "world.cfg"
        path.write_text(tree)
        slurm.ask("sacctmgr", "-i", "-nP", "load", str(path))
        if commands:
            slurm.change(*commands)
        self.seen = self.backend.observe(TREE_PARTS)
        self.held = lines(self.seen)

    def changes(self) -> list[str]:
        """What appeared (+) and vanished (-) since the last question."""
        before = self.held
        self.seen = self.backend.observe(TREE_PARTS)
        self.held = lines(self.seen)
        return sorted(
            [*(f"+{line}" for line in self.held - before), *(f"-{line}" for line in before - self.held)]
        )

    def errors(self, *actions: ClusterAction) -> list[str]:
        """Kinds of the errors, one for each action in the order given; `ok` for none."""
        outcomes = {o.action: o.error for o in self.backend.apply(actions)}
        return [type(outcomes[action]).__name__ if outcomes[action] else "ok" for action in actions]


def new(name: str, parent: str = "top", description: str = "d") -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description=description, organization="o")


def join(name: str, user: str, **options: object) -> AddMember:
    return AddMember(account=name, user=user, **options)  # type: ignore[arg-type]


def limit(name: str, **values: int) -> SetLimits:
    return SetLimits(account=name, after=tuple(values.items()))


def qos(name: str, *after: str, default: str) -> SetQos:
    return SetQos(account=name, after=after, default=default)


def delete(name: str, parent: str = "top") -> DeleteAccount:
    return DeleteAccount(account=name, parent=parent)


@dataclass(frozen=True)
class Row:
    """What we do, how it ends for each action, and what it changed."""

    actions: tuple[ClusterAction, ...]
    ends: tuple[str, ...]
    changes: tuple[str, ...] = ()
    # Commands of sacctmgr that come before it.
    before: tuple[str, ...] = ()
