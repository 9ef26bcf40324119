# SPDX-License-Identifier: MIT
"""Members: every allocation keeps the members, state, limits and place that Waldur says it has.

observe -> plan (`planning`) -> refine -> portions of changes, read back, reports to Waldur. A resource is set erred
only for a lasting fault of its own, and only while its account exists; an outage sets none erred.

Removals are confirmed: before a member is removed, each resource's own team is read from Waldur. A person may have
joined while the cluster was read, and a fault of the bulk listing must not remove members. Only then are the jobs of
those accounts read: an idle pass does not pay for it.
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
    ObjectKind,
    RemoveMember,
    SetQos,
    objects_made,
    only,
)
from agent.core.directory_actions import BeginDeletion
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
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
from agent.core.model import Deletion, Part, ResourceState, Snapshot
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
from agent.run import gate, ownership, waldur_facts
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep, NamedPeople, PeopleLeaving
from agent.run.membership import member_statuses, overview, planning
from agent.run.membership.planning import PlannedSync, SyncFacts
from agent.run.results import ResourceResult, Result, postponed
from agent.run.site import Site
from agent.state import blocked, cluster_usernames, hierarchy_names, ledger, listings
from agent.waldur import resources
from agent.waldur.client import WaldurClient
from backends.base import NAMES, Paced, Reread, Scope

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
    """The resources of a pass, and the errors so far, by resource uuid."""

    key = PassMode.MEMBERSHIP_SYNC

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._now = datetime.now(UTC)
        # They keep a resource from being in step.
        self.errors: dict[str, SiteAgentError] = {}
        # Lasting ones of the resource itself.
        self.faults: dict[str, SiteAgentError] = {}
        # Members whom the cluster refuses: they are reported, and the resource is not set erred for them.
        self._skipped: dict[str, SiteAgentError] = {}
        self._withheld: frozenset[Action] = frozenset()
        # The cluster as it was read last, None where that is not known.
        self.seen: Snapshot | None = None
        # Why users cannot be removed, by name.
        self.unremovable: dict[str, SiteAgentError] = {}
        # Why users cannot be added, by account and name.
        self.unjoinable: dict[tuple[str, str], str] = {}
        self._metadata: Mapping[str, Mapping[str, Any]] = {}
        self.requests = {ReportMetadata: self._set_metadata}

    def observe(self) -> SyncFacts:
        """Read Waldur and the cluster, each once; without resources no cluster. Raises SiteAgentError."""
        run = self.run
        site, scope, read = self.site, run.scope, waldur_facts.read(run)
        if read.cluster is None:
            snapshot = Snapshot(site.backend.cluster, complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
        else:
            snapshot = read.cluster
        if (named := run.result(NamedPeople)) is not None:
            read = replace(read, users=named.users, names_unknown=named.unknown)
        foreign = ledger.of_others(site.state_dir, site.backend.cluster, site.offering.uuid, site.neighbours)
        # Without resources the cluster was not read: it is unknown who is in an account that an order is at work on.
        # Nor is it known of people who may have another name there.
        is_known = bool(read.resources or not read.in_progress) and not read.names_unknown
        return SyncFacts(
            read,
            snapshot,
            waldur_facts.sync_rules(site, read, unrecorded=foreign.unrecorded),
            site.backend.canonical,
            foreign=foreign.accounts,
            blocked=blocked.by_account(site.state_dir, site.offering.uuid),
            lost=None if scope.is_everything else (),
            is_whole=scope.is_everything,
            known_names=cluster_usernames.of_offering(site.state_dir, site.offering.uuid),
            ends_users=scope.is_everything and is_known and site.client.if_supported(BeginDeletion.feature),
        )

    def plan(self, facts: SyncFacts) -> PlannedSync:
        return planning.plan(facts)

    def refine(self, facts: SyncFacts, plan: PlannedSync) -> SyncFacts | None:
        """Confirm the removals of a plan: return the facts with the teams, jobs and other holders of the accounts that
        members would leave, the used amounts of limits that would be lowered, the QoS and partitions of the cluster
        where members would get some, and the holders of lost accounts. None when nothing is to be confirmed.

        Raises SiteAgentError.
        """
        site, more = self.site, facts
        if leaving := plan.leaving - facts.confirmed:
            concerned = [r for r in facts.waldur.resources if fold(r.backend_id) in leaving]
            more = replace(
                more,
                waldur=waldur_facts.confirm_people(site, facts.waldur, concerned),
                confirmed=facts.confirmed | leaving,
                holders={**facts.holders, **_other_holders(site, plan, leaving)},
            )
        usage_of = gate.unknown_usage(self.run.rules, plan) - facts.usage_asked
        if leaving or usage_of:
            seen = site.backend.observe(Scope(frozenset(), jobs_of=leaving, usage_of=usage_of))
            snapshot = facts.snapshot.with_usage(seen)
            more = replace(more, snapshot=snapshot, usage_asked=facts.usage_asked | usage_of)
        if names := plan.used_names - facts.names_asked:
            seen = site.backend.observe(Scope(frozenset(), names=names))
            asked = facts.names_asked | names
            more = replace(more, snapshot=more.snapshot.with_names(seen), names_asked=asked)
        if facts.lost is None and (lost := facts.lost_accounts()):
            holders = resources.holders_of_each(
                site.client, [claim.account for claim in lost], everywhere=True
            )
            more = replace(more, lost=tuple(claim for claim in lost if holders.get(claim.account, []) == []))
        return None if more is facts else more

    def resume(self, plan: PlannedSync) -> PlannedSync:
        """Raise PassUnfinished where a member would be removed whom a plan by the directory's names of now keeps."""
        named, removals = self.run.result(NamedPeople), frozenset(only(RemoveMember, plan.actions))
        if named is None or not removals:
            return plan
        facts, unknown = plan.facts, plan.facts.rules.no_removal_reason or named.unknown
        waldur = replace(facts.waldur, users=named.users, names_unknown=named.unknown)
        again = planning.plan(
            replace(facts, waldur=waldur, rules=replace(facts.rules, no_removal_reason=unknown))
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
        """Remember which listings Waldur has, and which accounts the offering names, for the others of the cluster; log
        notes on resources once. Report to Waldur whose deletion begins; return the plan as it is after that.
        """
        site, plan = work.site, work.plan
        if news := plan.facts.waldur.listings:
            listings.write(site.state_dir, site.offering.uuid, site.client.url, news)
        self.take_up(plan, work.decision)
        if plan.unmanaged:
            work.report.notes.append(plan.unmanaged)
        if plan.facts.rules.no_removal_reason:
            work.report.notes.append(
                f"no member is removed from any account: {plan.facts.rules.no_removal_reason}"
            )
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
            if each.put_off:  # where events replace polls, no pass comes by itself for hours
                work.report.later = work.report.later or BackendUnavailable(each.put_off)
            resource = each.case.resource
            notes = (*((each.skipped,) if each.skipped else ()), *each.notes)
            if site.cache.said.news(resource.uuid, *notes):
                log.warning(
                    "resource %s (%s, account %s): %s",
                    resource.uuid,
                    resource.name,
                    each.account,
                    "; ".join(notes),
                    extra={"resource": resource.uuid, "account": each.account},
                )
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
        reread = None if self.seen is None else Reread.touched(self.seen, portion.actions)
        seen = self.site.backend.observe(Scope(READ_BACK, reread=reread))
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
        """Note why the resource is not in step. An account that is gone since then is no fault, and neither is an
        action of which no later pass will do more (DoneInPart).
        """
        uuid = plan.case.resource.uuid
        final = {action for action, error in failed.items() if isinstance(error, DoneInPart)}
        own = set(plan.actions) - final
        left = {a for a in again.cluster_actions() if a in portion.actions and a not in final}
        errors = {a: failed[a] for a in portion.actions if a in own and a in failed}
        lasting = {action: error for action, error in errors.items() if not error.retryable}
        if again.skipped:
            self.errors.setdefault(
                uuid, NotApplied(f"the cluster has changed since the plan was made: {again.skipped}")
            )
        elif (refused := _refused_members(errors, left)) and _is_in_use(plan, again):
            self._skipped[uuid] = refused
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
        member_statuses.report(work, self.seen, self.unjoinable)

    def leave(self, work: SyncWork) -> None:
        """Leave the accounts in step, and who is to be deleted; what concerns the whole offering after a whole pass."""
        run, plan = self.run, work.plan
        facts, seen = plan.facts, self.seen
        if not run.applies:
            self.take_up(plan, work.decision)
            facts, seen = planning.expected(work)
        desired = planning.desired_groups(plan, work.decision, self.errors)
        if desired.names() or desired.users:
            run.leave(AccountsInStep(desired, frozenset(desired.users), is_whole=plan.is_whole))
        leaving = planning.departures_of(facts, seen, self.unremovable) if seen is not None else ()
        if seen is not None and leaving and gate.is_known(run, self.key, plan):
            run.leave(PeopleLeaving(leaving, facts.waldur.offering, seen))
        if run.applies:
            overview.write(work, seen, self.errors)
        run.leave(plan.facts.waldur)
        if plan.is_whole:
            run.leave(DirectoryNames(plan.facts.waldur.users, plan.facts.waldur.names_unknown))

    def shows(self, work: SyncWork) -> Sequence[Action]:
        """Return the changes, how resources end, and what would be reported to Waldur of members. The last sync is
        skipped: that it gets older is no difference.
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
            f"resource {each.case.resource.name} (account {each.account or 'none'}): {note}"
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
        listed = [action.resource for action in only(ReportMetadata, reports) if work.allows(action)]
        with suppress(WaldurError):  # then each is read by itself
            self._metadata = resources.metadata_of(self.site.client, listed)
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
            # A resource with actions that wait for an approval, or that the mode skips, is not marked OK.
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
        if refused := self._skipped.get(uuid):
            return ResourceResult(uuid, Result.STUCK, account, str(refused), refused)
        if action := next((action for action in plan.actions if action in self._withheld), None):
            return ResourceResult(uuid, Result.WAITING, account, work.decision.reason(action))
        if count := len(_allowed(work, plan)):
            return ResourceResult(uuid, Result.DONE, account, f"{count} change{'s' if count > 1 else ''}")
        return None


def _other_holders(site: Site, plan: PlannedSync, leaving: frozenset[str]) -> dict[str, str]:
    """Ask Waldur which of the accounts that members leave are named by resources outside of this plan, of all
    offerings that the token sees. Return the holder by account.
    """
    concerned = [each for each in plan.plans if each.account in leaving]
    spelled = {
        name: each.account for each in concerned for name in (each.account, each.case.resource.backend_id)
    }
    inside = {each.case.resource.uuid for each in plan.plans}
    found = {}
    for name, holders in resources.holders_of_each(site.client, spelled, everywhere=True).items():
        if isinstance(holders, WaldurError):
            found[spelled[name]] = f"whoever does ({holders})"
            continue
        for holder in holders:
            is_over = holder.state is ResourceState.TERMINATED or holder.offering_uuid in site.elsewhere
            if holder.uuid not in inside and not is_over:
                found[spelled[name]] = f"resource {holder.uuid}"
    return found


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
    """Report to Waldur whose account is deleted now, before any removal. Return the plan without those
    whom it has readmitted since; None where there is none to report.
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
        replace(facts, waldur=replace(facts.waldur, users=users), readmitted=facts.readmitted | kept)
    )


def _allowed(work: SyncWork, plan: ResourcePlan) -> list[ClusterAction]:
    return [action for action in plan.cluster_actions() if work.allows(action)]


def _portion(work: SyncWork, actions: Iterable[Action]) -> Portion:
    some = Plan.of(actions).cluster_actions()
    plans = [plan for plan in work.plan.plans if not set(plan.actions).isdisjoint(some)]
    return Portion(some, tuple(plans))


def _is_in_use(plan: ResourcePlan, again: ResourcePlan) -> bool:
    """Return whether the account has a wanted member: then a refusal is about the others, not about the account."""
    missing = {thing.of for thing in objects_made(again.actions, ObjectKind.MEMBER)}
    return plan.spec is not None and bool(set(plan.spec.members) - missing)


def _is_fault(error: SiteAgentError) -> bool:
    """Return whether an error of the cluster is about the request, and not about the host or its rights."""
    return isinstance(error, PlanRefused) or (isinstance(error, BackendError) and not error.of_host)


def _refused_members(
    errors: Mapping[Action, SiteAgentError], left: Set[ClusterAction]
) -> MemberRefused | None:
    """Return the final refusals of single members, where nothing else of the resource failed or is left."""
    refused = {
        action: errors[action]
        for action in only(AddMember, errors)
        if not errors[action].retryable and _is_fault(errors[action])
    }
    if not refused or len(refused) != len(errors) or not left <= set(refused):
        return None
    return MemberRefused(
        f"skipped: {'; '.join(f'{action.user}: {error}' for action, error in refused.items())}"
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
    states = SetQos | BlockSubmission | AllowSubmission
    unset = any(isinstance(action, states) and not work.allows(action) for action in plan.actions)
    for action in plan.actions:
        if isinstance(action, WaldurAction) and not (unset and isinstance(action, ReportMetadata)):
            yield action
