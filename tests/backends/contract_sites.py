# SPDX-License-Identifier: MIT
"""The kinds of backends under contract, and in what they may differ: hierarchy, limits, powers, and the costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.core.actions import (
    AddMember,
    CancelJobs,
    ClusterAction,
    CreateAccount,
    CreateQos,
    DeleteAccount,
    RemoveMember,
    SetLimits,
)
from agent.core.errors import CommandFailed, NotEmpty, PlanRefused, SiteAgentError
from agent.core.model import Part
from backends.base import BULK_PARTS, Backend
from backends.moab.commands import NotInMoab

PROJECT = "p_proj"
MANY = ("a_many0", "a_many1", "a_many2")
Limits = Mapping[str, int]
Connect = Callable[..., Backend]


def new(name: str, parent: str = PROJECT) -> CreateAccount:
    return CreateAccount(account=name, parent=parent, description="d", organization="o")


def join(name: str, user: str, **options: object) -> AddMember:
    return AddMember(account=name, user=user, **options)  # type: ignore[arg-type]


def leave(name: str, user: str, *, default: bool = False) -> RemoveMember:
    return RemoveMember(account=name, user=user, is_default=default)


@dataclass(frozen=True)
class Costs:
    """Commands that change something: of a whole allocation with its hierarchy, deposit or limits, and two members; of
    four members of one account, one of whom is there; of two accounts changed alike and back; of three deletions.
    """

    tree: int
    joins: int
    alike: int
    deletions: int
    many: Mapping[str, int]


@dataclass(frozen=True)
class Site:
    """A backend under contract.

    `own`: users by account that a cluster has from the beginning. `hierarchy`: parents of what a new allocation brings.
    `notes`: on a desired state with one unknown limit, one impossible member, a QoS and a partition. `powers`: what it
    has of `partitions`, `moves`, `qos`. `good` and `bad`: actions on `a_mix`, with the kinds of errors of the bad ones.
    """

    kind: str
    connect: Connect
    unhealthy: Callable[[], Backend]
    costs: Costs
    own: Mapping[str, set[str]]
    hierarchy: Mapping[str, str]
    tracked: frozenset[str]
    complete: frozenset[Part]
    limit: str
    desired_limits: Limits
    changes: tuple[Limits, ...]
    settings: tuple[Mapping[str, object], ...]
    notes: int
    good: tuple[ClusterAction, ...]
    bad: tuple[ClusterAction, ...]
    errors: frozenset[type[SiteAgentError]]
    powers: frozenset[str] = field(default_factory=frozenset)


def slurm(kind: str, connect: Connect, *, tree: int) -> Site:
    return Site(
        kind=kind,
        connect=connect,
        unhealthy=lambda: connect(default_account="gone", root_account="root"),
        costs=Costs(
            tree=tree,
            joins=2,
            alike=2,
            deletions=2,
            many={
                "nothing": 0,
                "the same new limits of many accounts": 1,
                "many members of one account": 1,
                "the same members of many accounts": 1,
                "the same leavers of many accounts": 1,
                "names that cannot be": 0,
            },
        ),
        own={"root": {"root"}},
        hierarchy={"c_tree": "root", "p_tree": "c_tree", "a_tree": "p_tree"},
        tracked=frozenset({"cpu", "mem", "gres/gpu"}),
        complete=BULK_PARTS - {Part.QOS},
        limit="cpu",
        desired_limits={"cpu": 600, "mem": 2048},
        changes=(
            {"cpu": 100, "mem": 2000},
            {"cpu": 50},
            {"cpu": 2_000_000, "mem": 1025},
            {"cpu": 0, "gres/gpu": 5},
        ),
        settings=(
            {},
            {"default_account_policy": "individual", "qos_management": {"enabled": True}},
            {"parent_account": "root", "default_partition": "main"},
            {"qos_enforcement_enabled": True, "enforce_offering_qos": True},
        ),
        notes=2,
        good=(
            join("a_mix", "kim"),
            SetLimits(account="a_mix", after=(("cpu", 5),)),
            CreateQos(account="q_mix"),
            CancelJobs(account="a_none"),
            leave("a_none", "kim"),
        ),
        bad=(
            new("a_orphan", "nosuch"),
            join("a_orphan", "lea"),
            new("a,b"),
            join("a_mix", "x[1-3]"),
            SetLimits(account="a_mix", after=(("bogus", 1), ("cpu", 7))),
            DeleteAccount(account=PROJECT, parent="c_cust"),
        ),
        errors=frozenset({CommandFailed, PlanRefused, NotEmpty}),
        powers=frozenset({"partitions", "moves", "qos"}),
    )


def moab(connect: Connect, unhealthy: Callable[[], Backend]) -> Site:
    """On a MAM that refuses the account `a_orphan`. It is asked name by name."""
    return Site(
        kind="moab",
        connect=connect,
        unhealthy=unhealthy,
        costs=Costs(
            tree=7,  # two accounts with a fund each, a deposit, two members
            joins=3,
            alike=4,
            deletions=6,
            many={
                "nothing": 0,
                "the same new limits of many accounts": 3,
                "many members of one account": 20,
                "the same members of many accounts": 10,  # in the first account they are already
                "the same leavers of many accounts": 10,
                "names that cannot be": 0,
            },
        ),
        own={},
        hierarchy={"p_tree": "root", "a_tree": "p_tree"},
        tracked=frozenset({"deposit"}),
        complete=BULK_PARTS - {Part.USER_LIMITS},
        limit="deposit",
        desired_limits={"deposit": 600},
        changes=({"deposit": 100}, {"deposit": 50}, {"deposit": 2_000_000}, {"deposit": 0}),
        settings=(
            {},
            {"deactivate_when_paused": True},
            {"default_account": "users"},
            {"deactivate_when_downscaled": True, "manage_default_accounts": False},
        ),
        notes=3,
        good=(
            join("a_mix", "kim"),
            SetLimits(account="a_mix", after=(("deposit", 5),)),
            leave("a_none", "kim"),
        ),
        bad=(
            new("a_orphan"),
            join("a_orphan", "lea"),
            new("a,b"),
            join("a_mix", "x,y"),
            SetLimits(account="a_mix", after=(("bogus", 1), ("deposit", 7))),
            DeleteAccount(account=PROJECT, parent="c_cust"),
            CreateQos(account="q_mix"),
            CancelJobs(account="a_mix"),
        ),
        errors=frozenset({CommandFailed, PlanRefused, NotEmpty, NotInMoab}),
    )
