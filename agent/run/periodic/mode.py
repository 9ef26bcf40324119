# SPDX-License-Identifier: MIT
"""Periodic limits: a policy in Waldur computes them, we set them on the account and say what came of it, always.

What is on the cluster already is not written. The raw usage is reset once in a policy's period, however often the
message comes and its task fails: a second reset would forget what was used in between. It is the last step, when all
else is in force. A message that is older than one that was carried out changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.config.model import Mode, Offering
from agent.core import periodic
from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, PlanRefused, SiteAgentError
from agent.core.model import Part
from agent.core.names import fold, uuid_hex
from agent.core.periodic import Granularity, PeriodicState, PeriodicWish, ResetRawUsage
from agent.core.policy import PolicyMode
from agent.core.units import targets_of
from agent.run import gate as policing
from agent.run import site as sites
from agent.run.site import Site
from agent.state import journal
from agent.state.periodic import Memory
from agent.waldur import policies, resources
from backends.base import PeriodicKeeper, PeriodicPower, Scope

log = logging.getLogger(__name__)

CHANGING = (PolicyMode.SYNC, PolicyMode.UPSERT_ONLY)


class PeriodicFailed(BackendError):
    """Settings are not in force after all."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Case:
    """`digest` names the message, `at` says when Waldur wrote it."""

    site: Site
    keeper: PeriodicKeeper
    asked: PeriodicWish
    policy: str
    memory: Memory
    digest: str
    at: datetime
    now: datetime


def run(site: Site, document: Mapping[str, Any]) -> list[str]:
    """Carry a message out and report success; the commands that it took, those of earlier attempts as well. Raises
    SiteAgentError; the caller reports, or comes back.
    """
    now = datetime.now(UTC).replace(tzinfo=None)
    asked, at = periodic.wish(document), periodic.moment(document, now)
    policy, resource = _uuids(document)
    memory = _memory(site.offering, site.state_dir, document)
    case = _Case(
        site, _keeper(site), _checked(site, asked, resource), policy, memory, digest(document), at, now
    )
    done = memory.applied(now)
    if periodic.is_old(at, done):
        note = f"older than what was applied ({done}): nothing is done"
    else:
        note = "" if _apply(case) else "it is so already"
        memory.note_applied(at, now)
    if note:
        log.info("periodic limits of resource %s: %s", resource, note)
    commands = memory.commands(case.digest)
    policies.report(site.client, policy, resource, error="", commands=commands)
    memory.forget_commands(case.digest)
    return commands


def report_failure(
    offering: Offering, state_dir: Path, document: Mapping[str, Any], error: SiteAgentError
) -> None:
    """Tell the policy why its settings are not in force. What Waldur says to that is logged only."""
    try:
        policy, resource = _uuids(document)
        commands = _commands_so_far(offering, state_dir, document)
        client = sites.client(offering, Mode.ORDER_PROCESS)
        policies.report(client, policy, resource, error=str(error), commands=commands)
    except SiteAgentError as refusal:
        log.warning("the policy is not told of %s: %s", error, refusal)


def digest(document: Mapping[str, Any]) -> str:
    """The name of a message: the same one again has the same."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _commands_so_far(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> list[str]:
    """Of this message, over all attempts; forgotten with that."""
    try:
        memory, name = _memory(offering, state_dir, document), digest(document)
    except BackendError as error:
        log.warning("what was run before is not reported: %s", error)
        return []
    commands = memory.commands(name)
    memory.forget_commands(name)
    return commands


def _memory(offering: Offering, state_dir: Path, document: Mapping[str, Any]) -> Memory:
    return Memory(state_dir, offering.uuid, *_uuids(document))


def _apply(case: _Case) -> bool:
    """Bring the settings into force, and then reset; False where there was nothing to do. Raises BackendError."""
    asked, memory = case.asked, case.memory
    period = periodic.period(case.at, _granularity(case)) if asked.resets_usage else ""
    actions = periodic.actions(
        asked,
        _state(case.keeper, asked.account),
        reason=f"policy {case.policy}",
        resets_usage=bool(period) and not memory.has_reset(period, case.now),
    )
    settings = [action for action in actions if not isinstance(action, ResetRawUsage)]
    if settings:
        _carry_out(case, settings)
        _read_back(case)
    if len(settings) < len(actions):
        _reset(case, period, actions[len(settings) :])
    return bool(actions)


def _reset(case: _Case, period: str, actions: Sequence[ClusterAction]) -> None:
    """What SLURM refused, or was never asked, was not done; of all else nobody knows but the memory."""
    case.memory.begin_reset(period, case.now)
    try:
        _carry_out(case, actions)
    except BackendError:
        case.memory.end_reset(period, is_done=False)
        raise
    case.memory.end_reset(period, is_done=True)


def _carry_out(case: _Case, actions: Sequence[ClusterAction]) -> None:
    outcomes = case.keeper.apply(actions)
    case.memory.add_commands(case.digest, [c for outcome in outcomes for c in outcome.commands])
    journal.record(case.site, Mode.ORDER_PROCESS, outcomes, cause=f"policy {case.policy}")
    for outcome in outcomes:
        log.info("%s: %s", outcome.action.render(), outcome.error or "done")
        if outcome.error is not None:
            raise PeriodicFailed(str(outcome.error), retryable=outcome.error.retryable) from outcome.error


def _read_back(case: _Case) -> None:
    """Success is seen, not believed: rc 0 can be a refusal (22.05)."""
    state = _state(case.keeper, case.asked.account)
    left = periodic.actions(case.asked, state, reason="", resets_usage=False)
    if left:
        raise PeriodicFailed(f"the cluster took the commands and did not do it: {left[0].render()}")


def _state(keeper: PeriodicKeeper, account: str) -> PeriodicState:
    state = keeper.state(account)
    if state is None:
        raise PlanRefused(f"account {account} is not on the cluster")
    return state


def _keeper(site: Site) -> PeriodicKeeper:
    if not site.offering.periodic_limits_enabled:
        raise PlanRefused("periodic_limits_not_enabled: backend_settings.periodic_limits.enabled is not true")
    if not isinstance(site.backend, PeriodicPower):
        name = site.offering.backend_of(Mode.ORDER_PROCESS)
        raise PlanRefused(f"Backend {name} does not support periodic settings")
    return site.backend.periodic


def _checked(site: Site, asked: PeriodicWish, resource_uuid: str) -> PeriodicWish:
    """The wish in the cluster's spelling, if it is about an account that this resource has and we may change."""
    rules = policing.rules_of(site)
    if rules.paused or rules.mode not in CHANGING:
        raise PlanRefused(
            f"the site lets nothing be changed: {rules.paused_why if rules.paused else rules.mode}"
        )
    account = fold(asked.account)
    has = fold(resources.get(site.client, resource_uuid).backend_id)
    if account != has:
        raise PlanRefused(f"it is about account {account}, and resource {resource_uuid} has {has or 'none'}")
    if account in rules.protected_accounts or account == site.backend.home:
        raise PlanRefused(f"account {account} is protected")
    spelled = _spelled(site, periodic.named_in(asked)) if asked.limits else {}
    limits = {kind: _by_tres(values, spelled) for kind, values in asked.limits.items()}
    return replace(asked, account=account, limits=limits)


def _by_tres(values: Mapping[str, int], spelled: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in values.items():
        if found.setdefault(spelled[name], value) != value:
            raise PlanRefused(f"it has two limits for the TRES {spelled[name]}, one of them as {name}")
    return found


def _spelled(site: Site, named: Any) -> dict[str, str]:
    """The cluster's TRES for what the message names: itself, what our component of that name counts, or a GRES."""
    snapshot = site.backend.observe(Scope(parts=frozenset({Part.TRES})))
    known = {tres.lower(): tres for tres in snapshot.tres}
    found = {}
    for name in named:
        component = site.offering.components.get(name)
        targets = [t.lower() for t in targets_of(component)] if component else []
        ways = [name.lower(), *(targets if len(targets) == 1 else []), f"gres/{name.lower()}"]
        tres = next((known[way] for way in ways if way in known), "")
        if not tres:
            raise PlanRefused(
                f"this cluster does not track the TRES {name} (AccountingStorageTRES in slurm.conf)"
            )
        found[name] = tres
    return found


def _granularity(case: _Case) -> Granularity:
    """The policy's period; a month where it is one that we do not know. Raises WaldurError where it cannot be read."""
    return policies.granularity(case.site.client, case.policy) or Granularity.MONTH


def _uuids(document: Mapping[str, Any]) -> tuple[str, str]:
    try:
        return uuid_hex(str(document.get("policy_uuid"))), uuid_hex(str(document.get("resource_uuid")))
    except ValueError as error:
        raise PlanRefused("it has no policy_uuid or no resource_uuid") from error
