# SPDX-License-Identifier: MIT
"""The policy between a plan and its applying: rules, pause and approvals in, what may be applied out.

`policed` for a pass that goes on to apply; `judged` for `plan` and `drift`, which write nothing. A hold that
cannot be written down is still a hold.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Set
from dataclasses import replace

from agent.config.model import Mode
from agent.core.actions import Action
from agent.core.errors import BackendError
from agent.core.model import Snapshot
from agent.core.policy import LimitCuts, PolicyMode, PolicyRules, UsageDecreases
from agent.plan.policy.gate import HeldPlan, Judgement, judge, lowered_accounts
from agent.plan.policy.rules import Grounds, Why
from agent.run.site import Site
from agent.state import plans as held
from agent.state.plans import Kept, Shelf
from backends.base import Scope

log = logging.getLogger(__name__)

SHOWN = 3


def rules_of(site: Site) -> PolicyRules:
    """The offering's rules, with a pause by command."""
    rules = site.offering.policy
    note = held.pause_note(site.state_dir, site.offering)
    return replace(rules, paused=True, paused_why=note) if note and not rules.paused else rules


def judged(
    site: Site,
    mode: Mode,
    actions: Iterable[Action],
    snapshot: Snapshot,
    grounds: Grounds = Grounds(),
    *,
    whole: bool = True,
) -> Judgement:
    """What the policy would do with this plan now. Writes nothing; asks what is used where limits are lowered."""
    plan, rules = list(actions), rules_of(site)
    approved = Shelf(site.state_dir, site.offering, mode).approved(whole=whole)
    seen = _with_use(site, snapshot, lowered_accounts(plan, snapshot, rules, grounds))
    return judge(plan, seen, rules, approved, grounds)


def policed(
    site: Site,
    mode: Mode,
    actions: Iterable[Action],
    snapshot: Snapshot,
    grounds: Grounds = Grounds(),
    *,
    whole: bool = True,
) -> Judgement:
    """What of this plan may be applied now; what is held is written down and told once.

    `whole`: the plan is about everything of the offering, so that held plans which it lacks are gone. A plan for
    one order or resource says nothing of the others; what of it belongs to a plan that waits, waits with that.
    """
    judgement = judged(site, mode, actions, snapshot, grounds, whole=whole)
    shelf = Shelf(site.state_dir, site.offering, mode)
    parts = set() if whole else {waiting.id for waiting in shelf.waiting()}
    judgement = replace(judgement, held=tuple(_kept(site, shelf, plan, parts) for plan in judgement.held))
    for plan in judgement.released:
        if plan.id in parts:
            continue  # the whole of it is begun, and told of, by a pass over everything
        shelf.drop(plan.id)
        if shelf.begin(plan):
            log.warning("plan %s of offering %s was approved: %s", plan.id, site.offering.name, plan.reason)
    if whole:
        _tidy(site, shelf, judgement, has_gaps=grounds.has_gaps)
    return judgement


def _kept(site: Site, shelf: Shelf, plan: HeldPlan, parts: Set[str]) -> HeldPlan:
    """Written down, and told where that is news; where it cannot be written, nobody is sent to `approve`."""
    kept = Kept.KNOWN if plan.id in parts else shelf.hold(plan, site.backend.cluster)
    if kept is Kept.UNWRITTEN:
        plan = replace(
            plan,
            unwritten=f"it cannot be written to {site.state_dir}, so that nobody can approve it: mend that (a full "
            "disk?), and the next pass writes it down",
        )
    if kept is not Kept.KNOWN or (plan.floor and shelf.withdraw(plan.id)):
        _tell_held(shelf, plan)
    return plan


def permitted(
    site: Site, actions: Iterable[Action], snapshot: Snapshot, grounds: Grounds = Grounds()
) -> Judgement:
    """The judgement without the brake, for plans that were let go and are made again in the same pass: holding
    a rest of them now would leave them half.
    """
    everything = sys.maxsize
    rules = replace(
        rules_of(site),
        max_removed_members=everything,
        max_removed_percent=100,
        small_removal=everything,
        max_removed_accounts=everything,
        limit_cuts=LimitCuts.ALLOW,
        usage_decreases=UsageDecreases.ALLOW,
    )
    return judge(actions, snapshot, rules, grounds=grounds)


def _with_use(site: Site, snapshot: Snapshot, accounts: frozenset[str]) -> Snapshot:
    """The snapshot with what these accounts have used; without, where nobody can tell."""
    if not accounts:
        return snapshot
    try:
        seen = site.backend.observe(Scope(parts=frozenset(), usage_of=accounts))
    except BackendError as error:
        log.warning("what accounts have used of their limits cannot be read: %s", error)
        return snapshot
    return replace(snapshot, used={**snapshot.used, **seen.used}, complete=snapshot.complete | seen.complete)


def nothing_planned(site: Site, mode: Mode) -> None:
    """A pass over everything found nothing to plan: what was held or left out before is gone."""
    if not site.offering.policy.paused:
        _tidy(site, Shelf(site.state_dir, site.offering, mode), Judgement())


def _tidy(site: Site, shelf: Shelf, judgement: Judgement, *, has_gaps: bool = False) -> None:
    """Forget what is gone. Where plans were not judged, or not from a whole picture, nothing is known to be gone."""
    if shelf.leave_out(judgement.refused):
        _tell_left_out(shelf, judgement)
    is_blind = has_gaps or rules_of(site).paused or site.offering.policy.mode is PolicyMode.OBSERVE
    if is_blind or any(refused.why is Why.INCOMPLETE for refused in judgement.refused):
        return
    for plan in shelf.keep_only(judgement.held):
        log.info("plan %s of offering %s is not held any more", plan, site.offering.name)
    shelf.close_approvals(still=(*judgement.held, *judgement.released))


def _tell_held(shelf: Shelf, plan: HeldPlan) -> None:
    log.warning(
        "plan %s of offering %s (%s) is held: %s. Nothing of it is done%s",
        plan.id,
        shelf.offering.name,
        plan.scope,
        plan.reason,
        f"; {plan.unwritten}" if plan.unwritten else f" until `approve {plan.id}`; `approve` lists it",
    )


def _tell_left_out(shelf: Shelf, judgement: Judgement) -> None:
    lines = sorted(f"{r.action.verb} {r.action.target()}: {r.sentence}" for r in judgement.refused)
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    log.warning(
        "%s of offering %s: %d actions are left out: %s%s",
        shelf.mode,
        shelf.offering.name,
        len(lines),
        "; ".join(lines[:SHOWN]),
        more,
    )
