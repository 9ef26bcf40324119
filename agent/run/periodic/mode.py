# SPDX-License-Identifier: MIT
"""Periodic limits: a policy in Waldur computes them, the agent sets them on the account and always reports the result.

observe -> plan (`agent.plan.periodic`) -> all of a message or nothing of it. What is on the cluster already is not
written. The raw usage is reset once in a policy's period, however often the message comes and its task fails: a second
reset would forget what was used in between. It is the last step, when all else is in force. A message that is older
than one that was carried out changes nothing. One that is held is parked, since Waldur cannot be asked for its figures
again, and carried out after its approval (`PeriodicResume`, in passes over orders). One that comes in a pause is
parked as well, and carried out when the pause has ended (`parking`). In mode `observe` a message is planned for the log
and left to whoever serves the offering: nothing is reported to the policy, and nothing is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from agent.config.model import Mode as PassMode
from agent.config.model import Offering
from agent.core.account_names import fold
from agent.core.actions import ClusterAction, Phase, only
from agent.core.errors import BackendError, PassUnfinished, PlanRefused, SiteAgentError, WaldurError
from agent.core.model import Account, Part, Snapshot
from agent.core.periodic import DesiredSettings, Granularity, LimitType, ObservedSettings
from agent.core.periodic_actions import ResetRawUsage
from agent.core.plans import Outcome
from agent.core.printable import shortlist
from agent.core.units import targets_of
from agent.plan import periodic
from agent.plan.policy.rules import PolicyContext, Why
from agent.run import engine, gate
from agent.run import site as sites
from agent.run.cluster_facts import with_used_limits
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.periodic import parking
from agent.run.site import Site
from agent.state.held_plans import HeldPlans
from agent.state.periodic_policies import ParkedMessage, parked
from agent.waldur import periodic_messages, policies, resources
from agent.waldur.client import WaldurClient
from backends.base import PeriodicKeeper, PeriodicPower, Scope

log = logging.getLogger(__name__)

MODE = PassMode.ORDER_PROCESS
# A held message is planned again from time to time: less may be used than when it was held.
LOOKED_AT_EVERY = timedelta(hours=1)
LOOKED_AT_ONCE = 20
NAMED_AT_MOST = 5
# After a pause a message of each account may wait: no further one is begun after this, and orders come in between.
RESUMED_FOR_S = 120
# Refusals that come from the agent's own state and not from the site's policy: they may pass.
PASSING = frozenset({Why.INCOMPLETE, Why.UNRECORDED})


class PeriodicFailed(BackendError):
    """The settings are not in force."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


@dataclass(frozen=True)
class PeriodicFacts:
    """The settings of one message, in the cluster's spelling, and those of its account."""

    asked: DesiredSettings
    policy: str
    snapshot: Snapshot
    # None: the message is older than what was carried out, and nothing was read.
    observed: ObservedSettings | None = None
    # The policy's period in which the raw usage is to be reset now, empty where it is not.
    period: str = ""
    # An earlier period in which it was reset.
    last_reset: str = ""
    # The policy and the period that it opens with this message, empty where it opens none.
    opening: str = ""
    # Accounts whose used amounts were asked for.
    usage_asked: frozenset[str] = frozenset()


@dataclass(frozen=True)
class PlannedPeriodic:
    """The plan of one message. Its held plans are kept apart from those of all others: it is whole."""

    facts: PeriodicFacts
    is_whole: bool = True

    @cached_property
    def actions(self) -> Sequence[ClusterAction]:
        """Return the changes, the reset last. Pure."""
        facts = self.facts
        if facts.observed is None:
            return ()
        reason = f"policy {facts.policy}"
        return periodic.changes(
            facts.asked,
            facts.observed,
            reason=reason,
            resets_usage=bool(facts.period),
            last_reset=facts.last_reset,
            opening=facts.opening,
        )

    @property
    def snapshot(self) -> Snapshot:
        return self.facts.snapshot

    @property
    def context(self) -> PolicyContext:
        """Return that Waldur names the account: its resource was read."""
        return PolicyContext(named=frozenset({self.facts.asked.account}))


def run(site: Site, document: Mapping[str, Any]) -> list[str]:
    """Carry a message out and report success. Return its commands, with those of earlier attempts. One that is held is
    reported as held, and kept; one that comes in a pause is kept, and nothing is reported. Raises SiteAgentError; the
    caller reports the failure, or tries again.
    """
    commands: list[str] = []
    with engine.passing(site, MODE, is_recorded=False) as pass_:
        if parking.waits(pass_.rules):
            parking.keep(site.offering, site.state_dir, document, pass_.rules)
        else:
            message = PeriodicMessage(pass_, document)
            engine.reconcile(pass_, message)
            commands = message.commands
    if pass_.report.error is not None:
        raise pass_.report.error
    return commands


def report_failure(
    offering: Offering,
    state_dir: Path,
    document: Mapping[str, Any],
    error: SiteAgentError,
    *,
    client: WaldurClient | None = None,
) -> None:
    """Report to the policy why its settings are not in force, with the commands of all attempts. Errors of Waldur are
    only logged. In a pause the message is kept instead, and in mode `observe` nothing is reported.
    """
    rules = gate.rules_for(offering, state_dir)
    if parking.waits(rules):
        try:
            parking.keep(offering, state_dir, document, rules)
        except SiteAgentError as refusal:
            log.warning("%s is not reported to the policy: %s", error, refusal)
    elif not gate.may_report(rules):
        log.info("%s is not reported to the policy: mode %s", error, rules.mode)
        try:
            parking.unpark_older(offering, state_dir, document)
        except SiteAgentError as refusal:
            log.warning("an older message of the policy may wait still: %s", refusal)
    else:
        _report_failure(offering, state_dir, document, error, client)


def _report_failure(
    offering: Offering,
    state_dir: Path,
    document: Mapping[str, Any],
    error: SiteAgentError,
    client: WaldurClient | None,
) -> None:
    commands: list[str] = []
    try:
        policy, resource = parking.uuids(document)
        try:
            state, name = parking.state_of(offering, state_dir, document), parking.digest(document)
            commands = state.commands(name)
            state.forget_commands(name)
        except BackendError as unknown:
            log.warning("commands of an earlier attempt could not be reported to Waldur: %s", unknown)
        client = client or sites.client(offering, MODE)
        policies.report(
            client,
            policy,
            resource,
            error=str(error),
            commands=commands,
            is_emulated=offering.periodic_emulator,
        )
    except SiteAgentError as refusal:
        log.warning("%s is not reported to the policy: %s", error, refusal)


@dataclass
class ReadOnce:
    """What all messages of a pass share: the TRES of the cluster by folded name, and the period of each policy."""

    tres: Mapping[str, str] | None = None
    granularities: dict[str, Granularity] = field(default_factory=dict)


class PeriodicMessage(Mode[PeriodicFacts, PlannedPeriodic]):
    """One message, about one account: its settings, what was done of it before, and the error that stopped it.
    `waiting`: as it was parked, if it was.
    """

    def __init__(self, run: Pass, document: Mapping[str, Any], waiting: ParkedMessage | None = None) -> None:
        super().__init__(run)
        self.commands: list[str] = []
        self.waiting = waiting
        self._document = document
        self._now = parking.now()
        self._period = ""
        self._error: SiteAgentError | None = None
        self._read = run.result(ReadOnce) or ReadOnce()
        run.leave(self._read)

    def _take_up(self) -> None:
        """Raise PlanRefused, or PolicyStateLost."""
        site, document, waiting = self.site, self._document, self.waiting
        self._asked = periodic_messages.desired_settings(document, site.offering.periodic_limit_type)
        self._at = waiting.at if waiting else periodic_messages.written_at(document, self._now)
        # The held plans that were reported to the policy when the message was parked.
        self._reported_plans = frozenset(waiting.plans if waiting else ())
        self.policy, self._resource = parking.uuids(document)
        self._state = parking.state_of(site.offering, site.state_dir, document)
        self._digest = parking.digest(document)
        self._keeper = _keeper(site)
        self.key = parking.plans_key(self.policy, self._resource)
        self.cause = f"policy {self.policy}"

    def observe(self) -> PeriodicFacts | None:
        """Read Waldur's resource, the cluster's TRES, and the account's settings. Raises SiteAgentError."""
        self._take_up()
        waiting = self._state.parked
        if waiting is not None and self._at < waiting.at:
            why = (
                f"is held as plan {', '.join(waiting.plans)}"
                if waiting.plans
                else "came in a pause and waits"
            )
            raise PlanRefused(f"older than the message of {waiting.at}, which {why}")
        asked = _checked(self.site, self._asked, self._resource, self._read)
        snapshot = Snapshot(self.site.backend.cluster)
        if periodic.is_old(self._at, self._state.applied(self._now)):
            return PeriodicFacts(asked, self.policy, snapshot)
        observed = _observed(self._keeper, asked.account)
        if refused := self._keeper.cannot(asked, observed):
            raise PlanRefused(refused)
        # One account, and all of that one.
        account = Account(asked.account, None, observed.limits.get(LimitType.GRP_TRES_MINS, {}))
        snapshot = replace(snapshot, accounts={asked.account: account}, complete=frozenset({Part.ACCOUNTS}))
        if self.site.offering.periodic_emulator:
            # No jobs run in the emulator: what the cluster's own limits are used for does not count.
            used = {asked.account: dict.fromkeys(asked.tres, 0)}
            snapshot = replace(snapshot, used=used, complete=snapshot.complete | {Part.USAGE})
        period, last = self._period_due(asked), self._state.last_reset()
        earlier = last if periodic.is_later(period, last) else ""
        opening = self._opening(asked)
        return PeriodicFacts(asked, self.policy, snapshot, observed, period, earlier, opening)

    def _opening(self, asked: DesiredSettings) -> str:
        """Return the policy and the period that it opens with this message. Asks Waldur for the period's length only
        where the message may open one. Raises WaldurError.
        """
        if not (asked.resets_usage or asked.previous_period):
            return ""
        opened = periodic.opens(asked, self._at, self._state.applied(self._now), self._granularity())
        return f"policy {self.policy}, {opened}" if opened else ""

    def _granularity(self) -> Granularity:
        """Return how long the policy's period is; a month where that is unknown. Raises WaldurError."""
        known = self._read.granularities
        if self.policy not in known:
            known[self.policy] = policies.granularity(self.site.client, self.policy) or Granularity.MONTH
        return known[self.policy]

    def _period_due(self, asked: DesiredSettings) -> str:
        """Return the period to be reset, empty for none. Raises WaldurError."""
        if not asked.resets_usage:
            return ""
        period = periodic.period(self._at, self._granularity())
        return "" if self._state.has_reset(period, self._now) else period

    def plan(self, facts: PeriodicFacts) -> PlannedPeriodic:
        return PlannedPeriodic(facts)

    def refine(self, facts: PeriodicFacts, plan: PlannedPeriodic) -> PeriodicFacts | None:
        """Return the facts with the used amounts of limits that get lower; unknown where they cannot be read."""
        accounts = gate.unknown_usage(self.run.rules, plan) - facts.usage_asked
        if not accounts:
            return None
        snapshot = with_used_limits(self.site, facts.snapshot, accounts)
        return replace(facts, snapshot=snapshot, usage_asked=facts.usage_asked | accounts)

    def portions(self, work: Work[PlannedPeriodic]) -> Iterator[Portion]:
        """Yield the settings, then the reset, which does not begin where they are not in force. Nothing where a part of
        the message is not allowed.
        """
        actions = work.plan.actions
        if any(not work.allows(action) for action in actions):
            return
        settings = tuple(action for action in actions if action.phase is not Phase.CLEAR)
        if settings:
            yield Portion(settings)
        if len(settings) < len(actions):
            self._period = work.plan.facts.period
            yield Portion(tuple(actions[len(settings) :]))

    def apply(self, actions: Sequence[ClusterAction]) -> Sequence[Outcome]:
        """Do one portion. A reset that SLURM refused, or was never asked for, was not done; of any other
        only the state file has a record. Raises BackendError.
        """
        resets = bool(only(ResetRawUsage, actions))
        if resets:
            self._state.begin_reset(self._period, self._now)
        try:
            outcomes = self._keeper.apply(actions)
        except BackendError:
            if resets:
                self._state.end_reset(self._period, is_done=False)
            raise
        self._state.add_commands(self._digest, [c for outcome in outcomes for c in outcome.commands])
        if resets:
            self._state.end_reset(self._period, is_done=all(outcome.done for outcome in outcomes))
        return outcomes

    def read_back(self, work: Work[PlannedPeriodic], portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Read the settings again: rc 0 can be a refusal (22.05). Raises BackendError, and PlanRefused."""
        for outcome in outcomes:
            if outcome.error is not None:
                raise PeriodicFailed(str(outcome.error), retryable=outcome.error.retryable) from outcome.error
        if only(ResetRawUsage, portion.actions):
            return
        asked = work.plan.facts.asked
        observed = _observed(self._keeper, asked.account)
        left = periodic.changes(asked, observed, reason="", resets_usage=False)
        if left:
            raise PeriodicFailed(f"the cluster took the commands and did not do it: {left[0].render()}")

    def failed(self, work: Work[PlannedPeriodic], portion: Portion, error: SiteAgentError) -> None:
        self._error = self._error or error

    def tell(self, work: Work[PlannedPeriodic]) -> None:
        """Report success, or that the message is held. Raises the SiteAgentError that stopped it otherwise: the caller
        decides whether it is tried again. In mode `observe` nothing is reported, and nothing waits any more:
        whoever serves the offering has the message, too.
        """
        if not gate.may_report(work.run.rules):
            log.info(
                "periodic limits of resource %s are left as they are: mode %s",
                self._resource,
                work.run.rules.mode,
            )
            parking.unpark(self.site.offering, self.site.state_dir, self._document)
            return
        if self._error is not None:
            raise self._error
        reasons = dict.fromkeys(filter(None, map(work.decision.reason, work.plan.actions)))
        if work.decision.refused:
            if any(refused.why in PASSING for refused in work.decision.refused):
                raise PeriodicFailed("; ".join(reasons), retryable=True)
            raise PlanRefused("; ".join(reasons))
        if work.decision.held:
            plans = tuple(plan.id for plan in work.decision.held)
            # The report first: until the message is kept, its task has it and comes back.
            if self._reported_plans != frozenset(plans):
                try:
                    self._report("; ".join(reasons))
                except WaldurError as refusal:
                    if refusal.retryable:
                        raise
                    log.warning("it is not reported to the policy that its settings are held: %s", refusal)
            self._state.park(ParkedMessage(self._document, self._at, self._now, plans))
            return
        if not all(map(work.allows, work.plan.actions)):
            raise PassUnfinished(
                "what its message asks for now was not in the plan that was shown: the next pass carries it out"
            )
        if work.plan.facts.observed is None:
            applied = self._state.applied(self._now)
            log.info(
                "periodic limits of resource %s: older than what was applied (%s): nothing is done",
                self._resource,
                applied,
            )
        else:
            self._state.note_applied(self._at, self._now)
            if not work.plan.actions:
                log.info("periodic limits of resource %s: already applied", self._resource)
        self._report("")
        parking.unpark(self.site.offering, self.site.state_dir, self._document)

    def _report(self, error: str) -> None:
        """Report to the policy; no error is success. Raises WaldurError."""
        commands = self._state.commands(self._digest)
        is_emulated = self.site.offering.periodic_emulator
        policies.report(
            self.site.client,
            self.policy,
            self._resource,
            error=error,
            commands=commands,
            is_emulated=is_emulated,
        )
        self._state.forget_commands(self._digest)
        self.commands = commands


class PeriodicResume(PeriodicMessage):
    """A message that was held or came in a pause, and may go on now."""

    optional_name = "periodic limits"
    is_of_whole_passes = True

    @classmethod
    def each(cls, run: Pass) -> Iterator[PeriodicResume]:
        """Yield the messages that are due: those whose plans are approved or not held any
        more, and those that came in a pause; of the others some are looked at again in every hour. Where they take long
        the rest stays. Those whose resource is locked are left to the lock's holder. Where no message waits, this costs
        no request and no command. Raises StateError and PolicyStateLost where it is unknown which these are.
        """
        site = run.site
        waiting = parked(site.state_dir, site.offering.uuid)
        if not waiting or not gate.may_report(run.rules):
            return
        now = parking.now()
        free: list[ParkedMessage] = []
        others: list[ParkedMessage] = []
        for message in waiting:
            key = parking.plans_key(*parking.uuids(message.document))
            plans = HeldPlans(site.state_dir, site.offering, key)
            held = {plan.id for plan in plans.waiting()}
            approved = {approval.plan for approval in plans.approvals.open()}
            (free if held.intersection(message.plans) <= approved else others).append(message)
        if others:
            accounts = sorted(fold(str(message.document.get("backend_id"))) for message in others)
            are_several = len(others) > 1
            run.report.notes.append(
                f"{len(others)} message{'s' if are_several else ''} of periodic policies "
                f"{'wait' if are_several else 'waits'} for an approval, of {shortlist(accounts, NAMED_AT_MOST)}: "
                "`approve` lists the plans"
            )
        free.sort(key=lambda message: message.looked)
        others.sort(key=lambda message: message.looked)
        again = [message for message in others if abs(now - message.looked) > LOOKED_AT_EVERY]
        until_s = time.monotonic() + RESUMED_FOR_S
        is_first = True
        for message in (*free, *again[:LOOKED_AT_ONCE]):
            if not is_first and time.monotonic() > until_s:
                run.report.later = run.report.later or PassUnfinished(
                    "more messages of periodic policies wait: the next pass goes on"
                )
                return
            if run.lock(f"periodic_limits:{message.document.get('resource_uuid')}"):
                is_first = False
                yield cls(run, message.document)

    def observe(self) -> PeriodicFacts | None:
        """Return None where another message waits by now."""
        self.waiting = parking.state_of(self.site.offering, self.site.state_dir, self._document).parked
        if self.waiting is None or parking.digest(self.waiting.document) != parking.digest(self._document):
            self.waiting = None
            return None
        return super().observe()

    def conclude(self, error: SiteAgentError | None) -> None:
        """Report to the policy what will not get better; all else waits on."""
        if error is not None and self.waiting is not None:
            try:
                self._give_up_or_wait(error, self.waiting)
            except SiteAgentError as raised:
                error = raised
        super().conclude(error)

    def _give_up_or_wait(self, error: SiteAgentError, waiting: ParkedMessage) -> None:
        site, document = self.site, self._document
        # Without its rights in Waldur the agent can do nothing for any message: this one waits.
        if error.retryable or (isinstance(error, WaldurError) and error.denied):
            # It comes last the next time: the time of a pass may not be enough for all.
            state = parking.state_of(site.offering, site.state_dir, document)
            state.park(replace(waiting, looked=parking.now()))
        else:
            _report_failure(site.offering, site.state_dir, document, error, site.client)
            parking.unpark(site.offering, site.state_dir, document)


def _observed(keeper: PeriodicKeeper, account: str) -> ObservedSettings:
    observed = keeper.state(account)
    if observed is None:
        raise PlanRefused(f"account {account} is not on the cluster")
    return observed


def _keeper(site: Site) -> PeriodicKeeper:
    if not site.offering.periodic_limits_enabled:
        raise PlanRefused("periodic_limits_not_enabled: backend_settings.periodic_limits.enabled is not true")
    if not isinstance(site.backend, PeriodicPower):
        name = site.offering.backend_of(MODE)
        raise PlanRefused(f"Backend {name} does not support periodic settings")
    return site.backend.periodic


def _checked(site: Site, asked: DesiredSettings, resource_uuid: str, read: ReadOnce) -> DesiredSettings:
    """Return the settings in the cluster's spelling. Raises PlanRefused where they name another account."""
    account = fold(asked.account)
    has = fold(resources.get(site.client, resource_uuid).backend_id)
    if account != has:
        raise PlanRefused(f"it is about account {account}, and resource {resource_uuid} has {has or 'none'}")
    if account == site.backend.default_account:
        raise PlanRefused(f"account {account} is protected")
    names = spelled(site, asked.tres, read) if asked.limits else {}
    limits: dict[LimitType, dict[str, int]] = {}
    for kind, values in asked.limits.items():
        found = limits.setdefault(kind, {})
        for name, value in values.items():
            if found.setdefault(names[name], value) != value:
                raise PlanRefused(f"it has two limits for the TRES {names[name]}, one of them as {name}")
    return replace(asked, account=account, limits=limits)


def spelled(site: Site, named: Iterable[str], read: ReadOnce) -> dict[str, str]:
    """Return the cluster's TRES for each name: itself, what our component of that name counts, or a GRES. Raises
    PlanRefused where the cluster does not track one.
    """
    if read.tres is None:
        snapshot = site.backend.observe(Scope(parts=frozenset({Part.TRES})))
        read.tres = {tres.lower(): tres for tres in snapshot.tres}
    known, found = read.tres, {}
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
