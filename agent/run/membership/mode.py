# SPDX-License-Identifier: MIT
"""Members: every allocation keeps the members, state, limits and place that Waldur says it has.

observe and refine (`reading`) -> plan (`planning`) -> portions of changes, read back, reports to Waldur. A resource is
set erred only for a lasting fault of its own, and only while its account exists; an outage sets none erred.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

from agent.config.model import Mode as PassMode
from agent.core.account_names import fold
from agent.core.actions import (
    Action,
    AddMember,
    AllowSubmission,
    BlockSubmission,
    ClusterAction,
    Kind,
    RemoveMember,
    SetQos,
    only,
    things_made,
)
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import (
    BackendError,
    CommandFailed,
    ConfigError,
    DoneInPart,
    MemberRefused,
    NotApplied,
    PassUnfinished,
    PlanRefused,
    SiteAgentError,
    WaldurError,
)
from agent.core.model import Deletion, Part, Snapshot
from agent.core.plans import Outcome, Plan
from agent.core.waldur_actions import (
    FailResource,
    MarkResourceOk,
    ReportMetadata,
    WaldurAction,
)
from agent.plan import departures, membership
from agent.plan.membership import ResourcePlan
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import Why
from agent.plan.provider_groups import DirectoryNames
from agent.run import gate, ownership
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep, NamedPeople, PeopleLeaving
from agent.run.membership import afterwards, member_statuses, planning, reading
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.results import ResourceResult, Result, postponed
from agent.state import blocked, cluster_usernames, hierarchy_names, ledger
from agent.waldur import resources
from agent.waldur.client import WaldurClient
from backends.base import NAMES, Few, Paced, Scope

# One portion is written and read back in well under a minute, as a load file of so many accounts is. Where the backend
# expects more seconds than these, it is made smaller: a task that is ended by its time limit has noted nothing of it.
ACCOUNTS_AT_ONCE = 120
USERS_AT_ONCE = 200
PORTION_S = 50.0
log = logging.getLogger(__name__)

READ_BACK = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.DEFAULT_ACCOUNTS})

SyncWork = Work[PlannedSync]
Item = TypeVar("Item")


class Members(Mode[SyncFacts, PlannedSync]):
    """The resources of a pass, and the errors so far, by resource uuid.

    `errors` keep a resource from being in step; `faults` are lasting ones of its own. `_left_out`: members whom the
    cluster refuses; they are reported, and the resource is not set erred for them. `seen`: the cluster as it was read
    last, None where that is not known. `unremovable`: why users cannot be removed, by name; `unjoinable`: why they
    cannot be added, by account and name.
    """

    key = PassMode.MEMBERSHIP_SYNC

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._now = datetime.now(UTC)
        self.errors: dict[str, SiteAgentError] = {}
        self.faults: dict[str, SiteAgentError] = {}
        self._left_out: dict[str, SiteAgentError] = {}
        self._withheld: frozenset[Action] = frozenset()
        self.seen: Snapshot | None = None
        self.unremovable: dict[str, SiteAgentError] = {}
        self.unjoinable: dict[tuple[str, str], str] = {}
        self._metadata: Mapping[str, Mapping[str, Any]] = {}
        self.requests = {ReportMetadata: self._set_metadata}

    def observe(self) -> SyncFacts:
        return reading.observe(self.run)

    def plan(self, facts: SyncFacts) -> PlannedSync:
        return planning.plan(facts)

    def refine(self, facts: SyncFacts, plan: PlannedSync) -> SyncFacts | None:
        return reading.refine(self.run, facts, plan)

    def resume(self, plan: PlannedSync) -> PlannedSync:
        """Raise PassUnfinished where somebody would be removed whom a plan by the directory's names of now keeps."""
        named, removals = self.run.result(NamedPeople), frozenset(only(RemoveMember, plan.actions))
        if named is None or not removals:
            return plan
        facts, unknown = plan.facts, plan.facts.rules.nobody_leaves or named.unknown
        waldur = replace(facts.waldur, users=named.users, names_unknown=named.unknown)
        again = planning.plan(
            replace(facts, waldur=waldur, rules=replace(facts.rules, nobody_leaves=unknown))
        )
        if not removals <= frozenset(again.actions):
            raise PassUnfinished(
                "the directory has not got all names that the plan gives people on the cluster, which is left as it "
                "is: make a new plan"
            )
        return plan

    def take_up(self, plan: PlannedSync, decision: Decision) -> None:
        """Begin with a plan on which the gate has decided."""
        unplaced = {
            each.case.resource.uuid: ConfigError(each.spec.unplaced)
            for each in plan.plans
            if each.spec and each.spec.unplaced
        }
        self.errors = {**plan.unread, **plan.refused, **unplaced}
        self.faults = {**plan.refused}
        self.seen = plan.snapshot
        # What should happen and does not. What the site protects or ignores should not happen.
        held = (action for each in decision.held for action in each.actions)
        refused = (r.action for r in decision.refused if r.why not in (Why.PROTECTED, Why.IGNORED))
        self._withheld = frozenset([*held, *refused])

    def announce(self, work: SyncWork) -> PlannedSync | None:
        """Remember which accounts the offering names, for the others of the cluster; log notes on resources once. Tell
        Waldur whose deletion begins; return the plan as it is after that.
        """
        site, plan = work.site, work.plan
        self.take_up(plan, work.decision)
        if plan.unmanaged:
            work.report.notes.append(plan.unmanaged)
        if plan.facts.rules.nobody_leaves:
            work.report.notes.append(f"nobody is removed from any account: {plan.facts.rules.nobody_leaves}")
        which = (site.state_dir, site.backend.cluster)
        is_first = not ledger.of_offering(*which, site.offering.uuid)
        if plan.is_whole and (is_first or gate.is_known(work.run, self.key, plan)):
            standing = plan.snapshot.accounts.keys() if plan.facts.waldur.resources else None
            ledger.write_named(
                site.state_dir, site.backend.cluster, site.offering, plan.facts.named, standing
            )
            ownership.forget_questions(site, work.decision, plan.context, plan.snapshot)
            hierarchy_names.write(
                site.state_dir, site.backend.cluster, site.offering.uuid, _new_hierarchy_names(plan)
            )
        if plan.facts.waldur.resources and not plan.facts.waldur.names_unknown:
            cluster_usernames.write(site.state_dir, site.offering.uuid, plan.names_in_step)
        for each in plan.plans:
            resource = each.case.resource
            notes = (*((each.skipped,) if each.skipped else ()), *each.notes)
            if notes and site.cache.logged.get(resource.uuid) != notes:
                log.warning(
                    "resource %s (%s, account %s): %s",
                    resource.uuid,
                    resource.name,
                    each.account,
                    "; ".join(notes),
                    extra={"resource": resource.uuid, "account": each.account},
                )
            site.cache.logged[resource.uuid] = notes
        return _begun_deletions(work)

    def portions(self, work: SyncWork) -> Iterator[Portion]:
        """Yield one portion, or for many resources several: first what is added and changed, then who leaves, user by
        user: a default account moves to one that the user has joined, and is left last. How large the next one is
        depends on how long the ones before it took.
        """
        changed = [plan for plan in work.plan.plans if _allowed(work, plan)]
        wanted = membership.in_order(action for plan in changed for action in _allowed(work, plan))
        if len(changed) <= ACCOUNTS_AT_ONCE and self._is_quick(wanted):
            if wanted:
                yield _portion(work, wanted)
            return
        gone = membership.leavers(wanted)
        of_user: dict[str, list[Action]] = {}
        for action in wanted:
            if membership.is_departure(action, gone):
                of_user.setdefault(getattr(action, "user", ""), []).append(action)
        leaving = {action for actions in of_user.values() for action in actions}

        def staying(plan: ResourcePlan) -> list[ClusterAction]:
            return [action for action in _allowed(work, plan) if action not in leaving]

        slices = (
            self._sliced(changed, ACCOUNTS_AT_ONCE, staying),
            self._sliced(list(of_user), USERS_AT_ONCE, lambda user: of_user[user]),
        )
        yield from (_portion(work, actions) for actions in chain(*slices) if actions)

    def _is_quick(self, actions: Iterable[Action]) -> bool:
        backend, some = self.site.backend, [each for each in actions if isinstance(each, ClusterAction)]
        return not isinstance(backend, Paced) or not some or backend.expected_s(some) <= PORTION_S

    def _sliced(
        self, items: Sequence[Item], size: int, actions_of: Callable[[Item], Sequence[Action]]
    ) -> Iterator[list[Action]]:
        """Yield the actions of so many items at a time, or of fewer where they take long."""
        left = items
        while left:
            some = left[:size]
            while True:
                actions = [action for item in some for action in actions_of(item)]
                if len(some) == 1 or self._is_quick(actions):
                    break
                some = some[: len(some) // 2]
            left = left[len(some) :]
            yield actions

    def failed(self, work: SyncWork, portion: Portion, error: SiteAgentError) -> None:
        """Note a portion that cannot have happened, or cannot be read back: no fault of the resources."""
        self.seen = None
        for plan in portion.about:
            self.errors.setdefault(plan.case.resource.uuid, error)

    def read_back(self, work: SyncWork, portion: Portion, outcomes: Sequence[Outcome]) -> None:
        """Read again what was changed, and note resources of which a second plan still has actions. Raises
        BackendError.
        """
        blocked.note(self.site.state_dir, self.site.offering.uuid, outcomes)
        first = work.plan.snapshot
        few = None if self.seen is None else Few.touched(self.seen, portion.actions)
        seen = self.site.backend.observe(Scope(READ_BACK, few=few))
        # What cannot have changed is taken from the first snapshot.
        unchanged = (first.complete & {Part.TRES, *NAMES}) - seen.complete
        if Part.QOS not in seen.complete:
            seen = replace(seen, qos=first.qos, made_qos=first.made_qos, foreign_qos=first.foreign_qos)
        seen = replace(seen, tres=first.tres, partitions=first.partitions, complete=seen.complete | unchanged)
        self.seen = seen
        failed = {outcome.action: outcome.error for outcome in outcomes if outcome.error}
        for action, error in failed.items():
            if error.retryable or not _is_fault(error):
                continue
            if isinstance(action, RemoveMember):
                self.unremovable.setdefault(fold(action.user), error)
            elif isinstance(action, AddMember):
                words = error.said if isinstance(error, CommandFailed) else str(error)
                self.unjoinable[fold(action.account), fold(action.user)] = words
        for plan, again in zip(portion.about, work.plan.again(portion.about, seen), strict=True):
            self._check(portion, plan, again, failed)

    def _check(
        self,
        portion: Portion,
        plan: ResourcePlan,
        again: ResourcePlan,
        failed: Mapping[Action, SiteAgentError],
    ) -> None:
        """Note why the resource is not in step. An account that is gone meanwhile is no fault, and neither is an action
        that the cluster did in part for good (DoneInPart).
        """
        uuid = plan.case.resource.uuid
        settled = {action for action, error in failed.items() if isinstance(error, DoneInPart)}
        own = set(plan.actions) - settled
        left = {a for a in again.cluster_actions() if a in portion.actions and a not in settled}
        errors = {a: failed[a] for a in portion.actions if a in own and a in failed}
        lasting = {action: error for action, error in errors.items() if not error.retryable}
        if again.skipped:
            self.errors.setdefault(uuid, NotApplied(f"the cluster changed meanwhile: {again.skipped}"))
        elif (refused := _refused_members(errors, left)) and _is_in_use(plan, again):
            self._left_out[uuid] = refused
        elif lasting:
            self.errors.setdefault(uuid, next(iter(lasting.values())))
            if fault := _first_fault(lasting):
                self.faults.setdefault(uuid, fault)
        elif errors:
            self.errors.setdefault(uuid, next(iter(errors.values())))
        elif left:
            first = next(action for action in portion.actions if action in left)
            self.errors.setdefault(uuid, NotApplied(f"the cluster does not show it: {first.render()}"))

    def tell(self, work: SyncWork) -> None:
        """Report limits and metadata, then that a resource is in step, or why it is not."""
        self._show(work)
        work.send(action for plan in work.plan.plans for action in self.closing(work.plan, plan))
        for plan in work.plan.plans:
            found = self._result(work, plan)
            if found is None:
                work.report.in_step += 1
            else:
                work.report.resources.append(found)
        for uuid, error in work.plan.facts.waldur.unlisted.items():
            result = ResourceResult(uuid, postponed(error), "", f"it could not be read: {error}", error)
            work.report.resources.append(result)
        for uuid, error in work.plan.unread.items():
            work.report.resources.append(ResourceResult(uuid, postponed(error), "", str(error), error))
        member_statuses.tell(work, self.seen, self.unjoinable)

    def leave(self, work: SyncWork) -> None:
        """Leave the accounts in step, and who is to be deleted; what concerns the whole offering after a whole pass."""
        run, plan = self.run, work.plan
        facts, seen = plan.facts, self.seen
        if not run.applies:
            self.take_up(plan, work.decision)
            facts, seen = afterwards.expected(work)
        desired = afterwards.desired_groups(plan, work.decision, self.errors)
        if desired.names() or desired.users:
            run.leave(AccountsInStep(desired, frozenset(desired.users), is_whole=plan.is_whole))
        leaving = afterwards.departures_of(facts, seen, self.unremovable) if seen is not None else ()
        if seen is not None and leaving and gate.is_known(run, self.key, plan):
            run.leave(PeopleLeaving(leaving, facts.waldur.offering, seen))
        run.leave(plan.facts.waldur)
        if plan.is_whole:
            run.leave(DirectoryNames(plan.facts.waldur.users, plan.facts.waldur.names_unknown))

    def shows(self, work: SyncWork) -> Sequence[Action]:
        """Return the changes, how resources end, and what Waldur would be told of members. The last sync is left out:
        that it gets older is no difference.
        """
        plan, allowed = work.plan, work.decision.allowed
        endings = [
            action
            for each in plan.plans
            for action in self.closing(plan, each)
            if isinstance(action, FailResource) or (isinstance(action, MarkResourceOk) and each.spec)
        ]
        seen = plan.snapshot
        if member_statuses.is_wanted(self.site, plan):
            for action in (*only(AddMember, allowed), *only(RemoveMember, allowed)):
                seen = action.applied_to(seen)
        return (*allowed, *endings, *member_statuses.news(self.site, plan, seen, {}))

    def notes(self, plan: PlannedSync) -> Sequence[str]:
        return [
            f"resource {each.case.resource.uuid}: {note}"
            for each in plan.plans
            for note in (*((each.skipped,) if each.skipped else ()), *each.notes)
        ]

    def unplanned(self, plan: PlannedSync) -> Sequence[ResourceResult]:
        return [
            ResourceResult(uuid, postponed(error), "", str(error), error)
            for uuid, error in plan.unread.items()
        ]

    def _show(self, work: SyncWork) -> None:
        """Show limits, metadata and lost account names in Waldur; note what it refuses."""
        wanted = {
            plan.case.resource.uuid: list(_reports(work, plan))
            for plan in work.plan.plans
            if plan.case.resource.uuid not in self.errors
        }
        claims = [claim for claim in work.plan.facts.lost or () if work.allows(claim)]
        reports = [action for several in wanted.values() for action in several]
        shown = [action.resource for action in only(ReportMetadata, reports) if work.allows(action)]
        with suppress(WaldurError):  # then each is read by itself
            self._metadata = resources.metadata_of(self.site.client, shown)
        failed = work.send([*claims, *reports])
        for uuid, actions in wanted.items():
            if error := next((failed[action] for action in actions if action in failed), None):
                self.errors[uuid] = error
        for claim in claims:
            error = failed.get(claim)
            result = postponed(error) if error else Result.DONE
            message = str(error) if error else "its account is known again"
            work.report.resources.append(
                ResourceResult(claim.resource, result, claim.account, message, error)
            )

    def _set_metadata(self, client: WaldurClient, action: ReportMetadata) -> None:
        resources.set_metadata(client, action.resource, json.loads(action.metadata), self._metadata)

    def closing(self, sync: PlannedSync, plan: ResourcePlan) -> Iterator[WaldurAction]:
        """Yield the last reports on a resource: that it is OK, erred, or in step."""
        uuid = plan.case.resource.uuid
        fault = self.faults.get(uuid)
        if plan.skipped or (uuid in self.errors and fault is None):
            return
        waits = not self._withheld.isdisjoint(plan.actions)
        for action in membership.closing(plan, sync.facts.rules, self._now, fault=fault):
            # A resource with actions that wait for an approval, or that the mode leaves out, is not marked OK.
            is_early = waits and isinstance(action, MarkResourceOk)
            if not is_early and self.site.client.if_supported(action.feature):
                yield action

    def _result(self, work: SyncWork, plan: ResourcePlan) -> ResourceResult | None:
        """Return the result of a resource that was not in step, or is not now."""
        uuid, account = plan.case.resource.uuid, plan.account
        error = self.errors.get(uuid)
        if error is not None:
            return ResourceResult(uuid, postponed(error), account, str(error), error)
        if plan.skipped:
            return ResourceResult(uuid, Result.WAITING, account, plan.skipped)
        if refused := self._left_out.get(uuid):
            return ResourceResult(uuid, Result.STUCK, account, str(refused), refused)
        if action := next((action for action in plan.actions if action in self._withheld), None):
            return ResourceResult(uuid, Result.WAITING, account, work.decision.reason(action))
        if count := len(_allowed(work, plan)):
            return ResourceResult(uuid, Result.DONE, account, f"{count} change{'s' if count > 1 else ''}")
        return None


def _new_hierarchy_names(plan: PlannedSync) -> dict[str, str]:
    """Return the accounts of projects and customers as they stand, by uuid, where that is not remembered."""
    known = plan.facts.rules.offering.known_names
    found: dict[str, str] = {}
    for each in plan.plans:
        resource, spec = each.case.resource, each.spec
        place = [] if spec is None else [spec.account, *reversed(spec.ancestors)]
        uuids = (resource.project_uuid, resource.customer_uuid)
        for below, above, uuid in zip(place, place[1:], uuids, strict=False):
            standing = plan.snapshot.accounts.get(below.name)
            if uuid and standing is not None and standing.parent == above.name:
                found[uuid] = above.name
    return {uuid: account for uuid, account in found.items() if known.get(uuid) != account}


def _begun_deletions(work: SyncWork) -> PlannedSync | None:
    """Tell Waldur whose account is deleted now, before anybody is removed from anything. Return the plan without those
    whom it has taken back meanwhile; None where there is nobody to tell of.
    """
    facts, allowed = work.plan.facts, frozenset(work.decision.allowed)
    due = [each for each in work.plan.openings if departures.due(each, work.plan.actions, allowed)]
    if not due or not gate.is_known(work.run, Members.key, work.plan):
        return None
    failed = work.send(due)
    is_lacking = not work.site.client.if_supported(BeginDeletion.feature)
    kept = frozenset(each.offering_user for each in due if is_lacking or each in failed)
    begun = {each.offering_user for each in due} - kept
    for error in failed.values():
        work.report.later = work.report.later or (error if error.retryable else None)
    users = [
        replace(user, state=Deletion.DELETING) if user.uuid in begun else user for user in facts.waldur.users
    ]
    return planning.plan(
        replace(facts, waldur=replace(facts.waldur, users=users), taken_back=facts.taken_back | kept)
    )


def _allowed(work: SyncWork, plan: ResourcePlan) -> list[ClusterAction]:
    return [action for action in plan.cluster_actions() if work.allows(action)]


def _portion(work: SyncWork, actions: Iterable[Action]) -> Portion:
    some = Plan.of(actions).cluster_actions()
    plans = [plan for plan in work.plan.plans if not set(plan.actions).isdisjoint(some)]
    return Portion(some, tuple(plans))


def _is_in_use(plan: ResourcePlan, again: ResourcePlan) -> bool:
    """Return whether the account has a wanted member: then a refusal is about the others, not about the account."""
    missing = {thing.of for thing in things_made(again.actions, Kind.MEMBER)}
    return plan.spec is not None and bool(set(plan.spec.members) - missing)


def _is_fault(error: SiteAgentError) -> bool:
    """Return whether an error of the cluster is about the request, and not about the host or its rights."""
    return isinstance(error, PlanRefused) or (isinstance(error, BackendError) and not error.of_host)


def _refused_members(
    errors: Mapping[Action, SiteAgentError], left: Set[ClusterAction]
) -> MemberRefused | None:
    """Return the refusals of single members for good, where nothing else of the resource failed or is left."""
    refused = {
        action: errors[action]
        for action in only(AddMember, errors)
        if not errors[action].retryable and _is_fault(errors[action])
    }
    if not refused or len(refused) != len(errors) or not left <= set(refused):
        return None
    return MemberRefused(
        f"left out: {'; '.join(f'{action.user}: {error}' for action, error in refused.items())}"
    )


def _first_fault(errors: Mapping[Action, SiteAgentError]) -> BackendError | None:
    """Return the first fault of the resource itself, for its people: the action and the error text, no command."""
    for action, error in errors.items():
        # The site configures a state's QoS: that it is refused is no fault of the resource.
        if not isinstance(action, SetQos) and _is_fault(error):
            words = error.said if isinstance(error, CommandFailed) else str(error)
            return BackendError(f"{action.line()}: {words}")
    return None


def _reports(work: SyncWork, plan: ResourcePlan) -> Iterator[WaldurAction]:
    """Yield what Waldur is to show; a QoS or a state only where it has been set."""
    shown = SetQos | BlockSubmission | AllowSubmission
    unset = any(isinstance(action, shown) and not work.allows(action) for action in plan.actions)
    for action in plan.actions:
        if isinstance(action, WaldurAction) and not (unset and isinstance(action, ReportMetadata)):
            yield action
