# SPDX-License-Identifier: MIT
"""Periodic limits: a policy in Waldur computes them, we set them on the account and say what came of it, always.

What is on the cluster already is not written. The raw usage is reset once in a policy's period, however often the
message comes: a second reset would forget what was used in between. A message that is older than one that was
carried out changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agent.config.model import Mode
from agent.core import periodic
from agent.core.actions import ClusterAction
from agent.core.errors import BackendError, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import Part
from agent.core.names import fold, uuid_hex
from agent.core.periodic import Granularity, PeriodicState, PeriodicWish
from agent.core.policy import PolicyMode
from agent.core.units import targets_of
from agent.run import journal, policing, state_files
from agent.run.sites import Site
from agent.run.state_files import Unreadable
from agent.waldur import policies, resources
from backends.base import PeriodicKeeper, PeriodicPower, Scope

log = logging.getLogger(__name__)

CHANGING = (PolicyMode.SYNC, PolicyMode.UPSERT_ONLY)


@dataclass(slots=True)
class Applied:
    """What was done; `commands` as they were run."""

    commands: list[str] = field(default_factory=list)
    note: str = ""


def run(site: Site, document: Mapping[str, Any]) -> Applied:
    """Carry a message out and report success. Raises SiteAgentError; the caller reports, or comes back."""
    asked, at = periodic.wish(document), periodic.moment(document)
    policy, resource = _uuids(document)
    case = _Case(
        site, _keeper(site), _checked(site, asked, resource), policy, _Memory(site, policy, resource)
    )
    applied = Applied()
    done = case.memory.applied
    if at is not None and done is not None and at < done:
        applied.note = f"older than what was applied ({done}): nothing is done"
    else:
        _apply(case, at or datetime.now(UTC).replace(tzinfo=None), applied)
    if applied.note:
        log.info("periodic limits of resource %s: %s", resource, applied.note)
    policies.report(site.client, policy, resource, error="", commands=applied.commands)
    return applied


def report_failure(site: Site, document: Mapping[str, Any], error: SiteAgentError) -> None:
    """Tell the policy why its settings are not in force. What Waldur says to that is logged only."""
    try:
        policy, resource = _uuids(document)
        commands = error.commands if isinstance(error, PeriodicFailed) else ()
        policies.report(site.client, policy, resource, error=str(error), commands=commands)
    except (WaldurError, PlanRefused) as refusal:
        log.warning("the policy is not told of %s: %s", error, refusal)


class PeriodicFailed(BackendError):
    """Settings are not in force after all; `commands` were run."""

    def __init__(self, message: str, commands: Sequence[str], *, retryable: bool = False) -> None:
        self.commands = tuple(commands)
        self.retryable = retryable
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class _Case:
    site: Site
    keeper: PeriodicKeeper
    asked: PeriodicWish
    policy: str
    memory: _Memory


def _apply(case: _Case, at: datetime, applied: Applied) -> None:
    asked = case.asked
    period = periodic.period(at, _granularity(case)) if asked.resets_usage else ""
    actions = periodic.actions(
        asked,
        _state(case.keeper, asked.account),
        reason=f"policy {case.policy}",
        resets_usage=bool(period) and period not in case.memory.resets,
    )
    if actions:
        _carry_out(case, actions, applied)
        _read_back(case, applied)
    else:
        applied.note = "it is so already"
    case.memory.note(at, period)


def _carry_out(case: _Case, actions: Sequence[ClusterAction], applied: Applied) -> None:
    outcomes = case.keeper.apply(actions)
    applied.commands += [command for outcome in outcomes for command in outcome.commands]
    journal.record(case.site, Mode.ORDER_PROCESS, outcomes, cause=f"policy {case.policy}")
    for outcome in outcomes:
        log.info("%s: %s", outcome.action.render(), outcome.error or "done")
        if outcome.error is not None:
            raise PeriodicFailed(
                str(outcome.error), applied.commands, retryable=outcome.error.retryable
            ) from outcome.error


def _read_back(case: _Case, applied: Applied) -> None:
    """Success is seen, not believed: rc 0 can be a refusal (22.05)."""
    state = _state(case.keeper, case.asked.account)
    left = periodic.actions(case.asked, state, reason="", resets_usage=False)
    if left:
        raise PeriodicFailed(
            f"the cluster took the commands and did not do it: {left[0].render()}", applied.commands
        )


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
    limits = {
        kind: {spelled[tres]: value for tres, value in values.items()}
        for kind, values in asked.limits.items()
    }
    return replace(asked, account=account, limits=limits)


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


class _Memory:
    """What was applied of one policy to one resource: a file of its own, since several tasks may be at work."""

    KEPT = 8

    def __init__(self, site: Site, policy: str, resource: str) -> None:
        self._state_dir = site.state_dir
        self._path = site.state_dir / "periodic" / site.offering.uuid / f"{policy}-{resource}.json"
        try:
            self._document = state_files.read_json(self._path) or {}
        except Unreadable as error:
            raise PeriodicFailed(f"what was done before cannot be known: {error}", ()) from error

    @property
    def applied(self) -> datetime | None:
        try:
            return datetime.fromisoformat(str(self._document.get("applied")))
        except ValueError:
            return None

    @property
    def resets(self) -> Sequence[str]:
        found = self._document.get("resets")
        return found if isinstance(found, list) else []

    def note(self, at: datetime, reset: str) -> None:
        """Written down after it was done: a crash in between repeats a reset within moments of the first."""
        resets = [*self.resets, *([reset] if reset and reset not in self.resets else [])][-self.KEPT :]
        document = {"applied": at.isoformat(), "resets": resets}
        if document != self._document:
            self._document = document
            state_files.write_json(self._state_dir, self._path, document)
