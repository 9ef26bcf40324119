# SPDX-License-Identifier: MIT
"""The desired state in the spelling of this cluster: names folded, hierarchy placed, TRES known, QoS chosen.

What the cluster cannot keep is skipped with a note. A name of the resource's own that it can never take raises
PlanRefused; one of the offering is no order's fault: it is skipped, or ConfigError where nothing else is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent.core.account_names import fold
from agent.core.errors import ConfigError, PlanRefused
from agent.core.model import AccountSpec, AllocationSpec, OwnQos, Part, RequestedState, Snapshot
from backends.slurm import states
from backends.slurm.allowed_names import checked, is_usable
from backends.slurm.schema import SlurmSettings


def canonical(settings: SlurmSettings, spec: AllocationSpec, snapshot: Snapshot) -> AllocationSpec:
    """Return the desired state as this cluster spells it. Applied twice, it changes nothing.

    `snapshot` has the TRES, and where they were read the QoS and partitions that there are. Raises PlanRefused and
    ConfigError.
    """
    snapshot.require(Part.TRES)
    account = _account(spec.account)
    members = tuple(dict.fromkeys(fold(user) for user in spec.members))
    requested = _folded(spec.requested)
    unusable = _unusable_partitions(settings, requested, snapshot)
    kept = tuple(name for name in requested.offering_partitions if name not in unusable)
    requested = replace(requested, offering_partitions=kept)
    offered = kept if settings.enforce_offering_partitions else ()
    usual = _usual_partitions(settings, offered, tuple(unusable))
    qos, partition, not_offered = _ordered(settings, requested, usual)
    partitions = (partition,) if partition else usual
    own, own_notes = _own_qos(settings, account.name, snapshot)
    state, state_notes = states.state(settings, requested, own)
    left = states.leftover_pause_notes(settings, requested, own, snapshot.accounts.get(account.name))
    state = replace(state, is_unclear=bool(left) and settings.skip_qos_swap)
    # What the members' default becomes by the site's policy; empty: the cluster keeps it, or takes the first account.
    # Who gets a default account joins it (22.05): one that takes jobs is a way around all limits and all reports.
    common = settings.default_account if snapshot.refuses_jobs(settings.default_account) else ""
    default_accounts = {"common": common, "individual": account.name}
    notes = [
        f"limit {tres}={value} is skipped: this cluster does not track the TRES {tres} "
        "(AccountingStorageTRES in slurm.conf)"
        for tres, value in spec.limits.items()
        if tres not in snapshot.tres
    ]
    notes += [f"partition {name!r} of the offering is skipped: {why}" for name, why in unusable.items()]
    notes += [
        f"member {user!r} is skipped: it is not a valid SLURM user name"
        for user in members
        if not is_usable("user", user)
    ]
    return replace(
        spec,
        account=account,
        ancestors=_placed(settings, spec.ancestors),
        limits={tres: value for tres, value in spec.limits.items() if tres in snapshot.tres},
        members=tuple(user for user in members if is_usable("user", user)),
        default_account=default_accounts.get(settings.default_account_policy, ""),
        requested=requested,
        partitions=partitions,
        qos=(qos,) if qos else (),
        default_qos=qos,
        own_qos=own,
        state=state,
        not_offered=not_offered,
        unplaced=_unplaced(account.name, qos, partitions, snapshot),
        notes=tuple(dict.fromkeys((*spec.notes, *state_notes, *left, *own_notes, *notes))),
    )


def _folded(requested: RequestedState) -> RequestedState:
    """Return what is requested with the names of QoS and partitions as slurmdbd keeps them: in lower case (22.05)."""
    taken: dict[str, tuple[str, ...]] = {}
    for partition, qos in requested.partition_qos.items():
        name = fold(partition)
        taken[name] = _names((*taken.get(name, ()), *qos))
    return replace(
        requested,
        qos=fold(requested.qos),
        partition=fold(requested.partition),
        offering_partitions=_names(requested.offering_partitions),
        offering_qos=_names(requested.offering_qos),
        partition_qos=taken,
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(fold, names)))


def _unusable_partitions(
    settings: SlurmSettings, requested: RequestedState, snapshot: Snapshot
) -> dict[str, str]:
    """Return the offering's partitions, where they count, that no association can have, each with the reason."""
    offered = requested.offering_partitions if settings.enforce_offering_partitions else ()
    found = {}
    for name in offered:
        if not is_usable("partition", name):
            found[name] = "it is not a valid SLURM partition name"
        elif not _is_there("partition", name, snapshot):
            found[name] = f"cluster {snapshot.cluster} has no such partition"
    return found


def _unplaced(account: str, qos: str, partitions: Sequence[str], snapshot: Snapshot) -> str:
    """Return why members can get none of these associations now, empty where they can."""
    named = [("QoS", qos), *(("partition", name) for name in partitions)]
    return "; ".join(
        f"cluster {snapshot.cluster} has no {kind} {name!r}, which members of the account {account} shall get. "
        "Make it there, or correct the offering in Waldur or "
        + ("`default_partition`" if kind == "partition" else "the order's attributes")
        for kind, name in named
        if name and not _is_there(kind, name, snapshot)
    )


def _is_there(kind: str, name: str, snapshot: Snapshot) -> bool:
    """Return whether the cluster has this QoS or partition, or they were not read."""
    if kind == "partition":
        return fold(name) in map(fold, snapshot.partitions) or Part.PARTITIONS not in snapshot.complete
    return fold(name) in map(fold, snapshot.qos) or Part.QOS not in snapshot.complete


def _own_qos(
    settings: SlurmSettings, account: str, snapshot: Snapshot
) -> tuple[OwnQos | None, tuple[str, ...]]:
    """Return the QoS of the account's own, and notes on why it has none. One that was not made for it is left alone."""
    if settings.own_qos is None:
        return None, ()
    others = {"normal", settings.qos_default, settings.qos_paused, settings.qos_downscaled}
    is_foreign = account in snapshot.qos and not snapshot.has_own_qos(account)
    if account in {*map(fold, others), *map(fold, settings.own_qos.additional)} or is_foreign:
        why = (
            f"QoS {account} was not made for account {account} of cluster {snapshot.cluster}: it is left alone, and "
            "the account has none of its own"
        )
        return None, (why,)
    standing = snapshot.accounts.get(account)
    has_other_limits = standing is not None and bool(standing.limits) and not standing.limits_on_qos
    notes: tuple[str, ...] = (
        (f"the limits of account {account} stay on the account, where they were before apply_limits_to_qos",)
        if settings.own_qos.holds_limits and has_other_limits
        else ()
    )
    if not settings.own_qos.holds_limits and (left := snapshot.qos_limits.get(account)):
        where = f"where name={account}"
        on_cluster = f" cluster={settings.cluster_name}" if settings.cluster_name else ""
        values = ",".join(f"{tres}={value}" for tres, value in sorted(left.items()))
        none = ",".join(f"{tres}=-1" for tres in sorted(left))
        notes += (
            f"QoS {account} has the limits {values}, which go on to count: apply_limits_to_qos is not set any more, "
            f"and they are not maintained. Move them: sacctmgr modify account {where}{on_cluster} set "
            f"GrpTRESMins={values}; then sacctmgr modify qos {where} set GrpTRESMins={none}",
        )
    return replace(settings.own_qos, name=account), notes


def _usual_partitions(
    settings: SlurmSettings, offered: Sequence[str], unusable: Sequence[str]
) -> tuple[str, ...]:
    """Return the partitions of the members' associations; none: they are good for all partitions.

    `unusable`: partitions of the offering that cannot be one of SLURM. Raises PlanRefused and ConfigError.
    """
    if offered:
        return tuple(offered)
    if settings.default_partition:
        return (checked("partition", settings.default_partition),)
    if unusable:
        # Without a partition an association is good for all of them, which the offering does not want.
        raise ConfigError(
            f"no partition of the offering in Waldur ({', '.join(map(repr, unusable))}) can be one of SLURM, and "
            "enforce_offering_partitions is on: correct them there, or set default_partition"
        )
    return ()


def _ordered(
    settings: SlurmSettings, requested: RequestedState, usual: Sequence[str]
) -> tuple[str, str, tuple[str, ...]]:
    """Return the QoS and the partition that the order names, and sentences on what the offering does not have: then
    the order gets neither.

    They count where QoS are enforced on associations. Waldur's form shows what the offering has, but takes any other
    value from a request (8.1). Raises PlanRefused for what SLURM cannot name.
    """
    if not requested.qos or not states.enforces_qos(settings, requested):
        return "", "", ()
    qos, partition = checked("QoS", requested.qos), requested.partition
    if partition:
        checked("partition", partition)
    # Where the offering has no partitions, and no one is usual, naming one of them all is less than the others get.
    partitions = {*requested.offering_partitions, *usual}
    allowed = requested.partition_qos.get(partition) or (*requested.offering_qos, settings.qos_default)
    refused = []
    if partition and partitions and partition not in partitions:
        refused.append(
            f"the offering has no partition {partition!r}, which the order names: it has "
            f"{', '.join(sorted(partitions))}"
        )
    elif qos not in allowed:
        where = f"on its partition {partition}" if partition in requested.partition_qos else "in Waldur"
        refused.append(
            f"the offering has no QoS {qos!r} {where}, which the order names: it has {', '.join(sorted(allowed))}. "
            "A manager of the offering can add it there"
        )
    return ("", "", tuple(refused)) if refused else (qos, partition, ())


def _placed(settings: SlurmSettings, ancestors: Sequence[AccountSpec]) -> tuple[AccountSpec, ...]:
    """Return the accounts above an allocation: below the root account, or in flat mode without the topmost one."""
    # Only a topmost account that has no place yet is dropped, so that doing it again changes nothing.
    unplaced = bool(ancestors) and not ancestors[0].parent
    kept = ancestors[1:] if settings.parent_account and unplaced else ancestors
    if any(not account.name for account in kept):
        raise PlanRefused("Waldur gives no slug for the customer to name the account above the project's by")
    top = settings.parent_account or settings.root_account
    return tuple(
        _account(replace(account, parent=account.parent if position else top))
        for position, account in enumerate(kept)
    )


def _account(spec: AccountSpec) -> AccountSpec:
    return replace(
        spec, name=checked("account", fold(spec.name)), parent=checked("account", fold(spec.parent))
    )
