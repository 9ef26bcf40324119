# SPDX-License-Identifier: MIT
"""The desired state of an allocation as MAM can keep it: two levels of accounts, a deposit, members, active or not.

Accounts do not stand below each other in MAM: an allocation names its project's account as its organization, and
a project's account itself; there are no customers. What MAM has nothing for (QoS, partitions, other limits) is left
out with a note. A name that it can never take raises PlanRefused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.model import AccountSpec, AllocationSpec, RequestedState, Snapshot, StateSpec
from backends.moab.allowed_names import checked, free_text, is_usable
from backends.moab.components import DEPOSIT
from backends.moab.schema import MoabSettings


def canonical(settings: MoabSettings, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
    members = tuple(dict.fromkeys(fold(user) for user in spec.members))
    observed = snapshot.accounts.get(fold(spec.account.name))
    return replace(
        spec,
        account=_account(spec.account, fold(spec.account.parent)),
        ancestors=tuple(_account(ancestor, settings.default_account) for ancestor in spec.ancestors[-1:]),
        limits={name: value for name, value in spec.limits.items() if name == DEPOSIT},
        members=tuple(user for user in members if is_usable(user)),
        default_account="",
        partitions=(),
        qos=(),
        default_qos="",
        own_qos=None,
        state=_state(settings, spec.requested),
        notes=(*spec.notes, *_notes(settings, spec, members), *(observed.remarks if observed else ())),
    )


def _account(spec: AccountSpec, parent: str) -> AccountSpec:
    name = checked("account", fold(spec.name))
    text = free_text(spec.description, name)
    return replace(spec, name=name, parent=checked("account", parent), description=text)


def _state(settings: MoabSettings, requested: RequestedState) -> StateSpec:
    """Where the site lets us: active, but for what Waldur has paused or downscaled. Else it is only reported."""
    if not (settings.deactivate_when_paused or settings.deactivate_when_downscaled):
        return StateSpec(is_always_reported=True)
    closed = (settings.deactivate_when_paused and requested.paused) or (
        settings.deactivate_when_downscaled and requested.downscaled
    )
    return StateSpec(submission=not closed, is_always_reported=True)


def _notes(settings: MoabSettings, spec: AllocationSpec, members: tuple[str, ...]) -> Iterator[str]:
    requested = spec.requested
    for name, value in spec.limits.items():
        if name != DEPOSIT:
            yield f"limit {name}={value} is skipped: MOAB knows no limit but {DEPOSIT}"
    for user in members:
        if not is_usable(user):
            yield f"member {user!r} is skipped: no name that MOAB can take"
    if requested.qos or requested.partition or requested.offering_partitions:
        yield "QoS and partitions are skipped: MOAB Accounting Manager has neither"
    for word, is_so, is_kept in (
        ("paused", requested.paused, settings.deactivate_when_paused),
        ("downscaled", requested.downscaled, settings.deactivate_when_downscaled),
    ):
        if is_so and not is_kept:
            yield (
                f"Waldur has it {word}, but backend_settings.deactivate_when_{word} is not set: nothing is done "
                "about it"
            )
