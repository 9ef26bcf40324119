# SPDX-License-Identifier: MIT
"""How an account shows that Waldur paused or downscaled its resource: by a QoS, or by taking no new jobs.

Where QoS are enforced on the associations, users have QoS of their own and the account's would not count: there
both states close the account for new jobs (GrpSubmitJobs=0), and so they do with `skip_qos_swap`. Elsewhere each
state has its QoS.
"""

from __future__ import annotations

from agent.core.account_names import fold
from agent.core.model import Account, OwnQos, RequestedState, StateSpec
from backends.slurm.allowed_names import checked
from backends.slurm.schema import SlurmSettings


def state(
    settings: SlurmSettings, requested: RequestedState, own: OwnQos | None
) -> tuple[StateSpec, tuple[str, ...]]:
    """Return what the requested state asks of the account, and notes on what cannot be done about it.

    Raises PlanRefused for a QoS that SLURM cannot name.
    """
    if settings.skip_qos_swap or enforces_qos(settings, requested):
        return StateSpec(submission=not (requested.paused or requested.downscaled)), ()
    if requested.paused or requested.downscaled:
        word, qos = (
            ("paused", settings.qos_paused) if requested.paused else ("downscaled", settings.qos_downscaled)
        )
        if qos:
            return StateSpec((checked("QoS", qos),), qos), ()
        return StateSpec(), (
            f"Waldur has it {word}, but backend_settings.qos_{word} is not set: nothing is done about it",
        )
    # Back from a state's QoS to the usual ones; an account without one keeps whatever the site gave it.
    limiting = frozenset({settings.qos_paused, settings.qos_downscaled} - {"", settings.qos_default})
    if not limiting:
        return StateSpec(), ()
    usual = (settings.qos_default, *((own.name, *own.additional) if own else ()))
    names = tuple(checked("QoS", name) for name in dict.fromkeys(usual))
    return StateSpec(names, own.name if own else settings.qos_default, only_from=limiting), ()


def leftover_pause_notes(
    settings: SlurmSettings, requested: RequestedState, own: OwnQos | None, standing: Account | None
) -> tuple[str, ...]:
    """Return a note where an account that is neither paused nor downscaled may still be held as it was before
    `skip_qos_swap` was set or removed. That looks like what a site set by hand, so nothing is done about it.
    """
    if standing is None or requested.paused or requested.downscaled:
        return ()
    where = f"where name={standing.name}"
    if settings.cluster_name:
        where += f" cluster={settings.cluster_name}"
    by_submission = settings.skip_qos_swap or enforces_qos(settings, requested)
    if not by_submission and standing.submit_limit == 0:
        return (
            f"account {standing.name} takes no jobs (GrpSubmitJobs=0), and Waldur has it neither paused nor "
            "downscaled. If that is left from skip_qos_swap, open it: sacctmgr modify account "
            f"{where} set GrpSubmitJobs=-1",
        )
    usual = {"", fold(settings.qos_default), own.name if own else ""}
    if settings.skip_qos_swap and fold(standing.default_qos) not in usual:
        names = ",".join(dict.fromkeys((settings.qos_default, *((own.name,) if own else ()))))
        default = own.name if own else settings.qos_default
        return (
            f"account {standing.name} has the default QoS {standing.default_qos}, and Waldur has it neither paused nor "
            "downscaled. With skip_qos_swap no QoS is exchanged: if it is left from a pause, set it back: sacctmgr "
            f"modify account {where} set qos={names} defaultqos={default}",
        )
    return ()


def enforces_qos(settings: SlurmSettings, requested: RequestedState) -> bool:
    """Return whether associations get the QoS that the order names: the site decides, or else the offering."""
    decided = settings.enforce_offering_qos
    return settings.qos_enforcement_enabled and (
        requested.offering_enforces_qos if decided is None else decided
    )
