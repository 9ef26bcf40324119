# SPDX-License-Identifier: MIT
"""The gate between a plan and its applying: what the site remembers goes in, what may be applied comes out.

`decide` for a pass that goes on to apply, which writes down what is held; `foresee` for `plan` and `drift`, which write
nothing. A hold that cannot be written down is still a hold.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.core.policy import PolicyMode, PolicyRules
from agent.plan.policy.gate import Decision, HeldPlan, lowered_accounts
from agent.plan.policy.gate import decide as decide_on
from agent.plan.policy.rules import Why
from agent.run.held import approvals_of, keys_of, leave_out, row_of
from agent.run.site import Site
from agent.state import plans as held
from agent.state.plans import Kept, Shelf

if TYPE_CHECKING:
    from agent.run.engine import Pass, Planned

log = logging.getLogger(__name__)

SHOWN = 3


def rules_of(site: Site) -> PolicyRules:
    """The offering's rules, with a pause by command."""
    rules = site.offering.policy
    note = held.pause_note(site.state_dir, site.offering)
    return replace(rules, paused=True, paused_why=note) if note and not rules.paused else rules


def may_tell(rules: PolicyRules) -> bool:
    """Whether Waldur may be told anything: not in a pause, and not in a mode that only observes."""
    return not rules.paused and rules.mode is not PolicyMode.OBSERVE


def foresee(site: Site, rules: PolicyRules, key: str, plan: Planned) -> Decision:
    """What the policy would do with this plan now. Writes nothing."""
    approved = approvals_of(Shelf(site.state_dir, site.offering, key), whole=plan.is_whole)
    return decide_on(plan.actions, plan.snapshot, rules, approved, plan.context)


def decide(run: Pass, key: str, plan: Planned) -> Decision:
    """What of this plan may be applied now; what is held is written down and told once.

    A plan about everything of the offering tells which held plans are gone. A plan for one order or resource says
    nothing of the others; what of it belongs to a plan that waits, waits with that.
    """
    site = run.site
    judgement = foresee(site, run.rules, key, plan)
    if not run.holds:
        return judgement
    shelf = Shelf(site.state_dir, site.offering, key)
    parts = set() if plan.is_whole else {waiting.id for waiting in shelf.waiting()}
    judgement = replace(judgement, held=tuple(_kept(site, shelf, each, parts) for each in judgement.held))
    for each in judgement.released:
        if each.id in parts:
            continue  # the whole of it is begun, and told of, by a pass over everything
        shelf.drop(each.id)
        if shelf.begin(each.id, each.keys):
            log.warning("plan %s of offering %s was approved: %s", each.id, site.offering.name, each.reason)
    if plan.is_whole:
        _tidy(run, shelf, judgement, has_gaps=plan.context.has_gaps)
    return judgement


def _kept(site: Site, shelf: Shelf, plan: HeldPlan, parts: Set[str]) -> HeldPlan:
    """Written down, and told where that is news; where it cannot be written, nobody is sent to `approve`."""
    kept = Kept.KNOWN if plan.id in parts else shelf.hold(row_of(plan, site.backend.cluster))
    if kept is Kept.UNWRITTEN:
        plan = replace(
            plan,
            unwritten=f"it cannot be written to {site.state_dir}, so that nobody can approve it: mend that (a full "
            "disk?), and the next pass writes it down",
        )
    if kept is not Kept.KNOWN or (plan.figures and shelf.withdraw(plan.id)):
        log.warning(
            "plan %s of offering %s (%s) is held: %s. Nothing of it is done%s",
            plan.id,
            shelf.offering.name,
            plan.scope,
            plan.reason,
            f"; {plan.unwritten}" if plan.unwritten else f" until `approve {plan.id}`; `approve` lists it",
        )
    return plan


def _tidy(run: Pass, shelf: Shelf, judgement: Decision, *, has_gaps: bool) -> None:
    """Forget what is gone. Where plans were not judged, or not from a whole picture, nothing is known to be gone."""
    if leave_out(shelf, judgement.refused):
        lines = sorted(f"{r.action.line()}: {r.sentence}" for r in judgement.refused)
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        log.warning(
            "%s of offering %s: %d actions are left out: %s%s",
            shelf.mode,
            shelf.offering.name,
            len(lines),
            "; ".join(lines[:SHOWN]),
            more,
        )
    if has_gaps or not may_tell(run.rules) or any(r.why is Why.INCOMPLETE for r in judgement.refused):
        return
    for plan in shelf.keep_only(each.id for each in judgement.held):
        log.info("plan %s of offering %s is not held any more", plan, run.site.offering.name)
    shelf.close_approvals(still=keys_of((*judgement.held, *judgement.released)))


def unknown_usage(rules: PolicyRules, plan: Planned) -> frozenset[str]:
    """Accounts of which a limit is lowered and nobody has asked what is used: the decision depends on it."""
    return lowered_accounts(plan.actions, plan.snapshot, rules, plan.context)
