# SPDX-License-Identifier: MIT
"""Whose accounts a pass meets: what is remembered of them, and what this pass finds out and writes down.

An account that is made is written down before it is. What Waldur names and is not ours is held once, for the whole
offering, whatever mode met it first (`ADOPTION`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from agent.core.account_names import fold
from agent.core.actions import TREE, ObjectKind, objects_ended, objects_made
from agent.core.errors import BackendError, StateUnwritable
from agent.core.model import Snapshot
from agent.core.ownership import Ledger, Origin
from agent.core.plans import Outcome
from agent.plan.policy import ownership
from agent.plan.policy.gate import Decision
from agent.plan.policy.rules import PolicyContext
from agent.run.site import Site
from agent.state import journal, ledger
from agent.state.held_plans import HeldPlans
from agent.state.store import Db, Source, reading, writing
from backends.base import Scope

log = logging.getLogger(__name__)

# The key of plans to adopt accounts: one for all modes.
ADOPTION = "adoption"
# After so long without being planned anywhere a question is forgotten.
ASKED_FOR = timedelta(days=1)


def known(site: Site, snapshot: Snapshot, context: PolicyContext, source: Source) -> Ledger:
    """Return whose the accounts of the cluster are: as it is remembered, with what stands as the offering's own now and
    what a person has adopted. Raises StateError.
    """
    with reading(source) as db:
        remembered = ledger.read(db, site.backend.cluster, site.offering.uuid)
        approvals = HeldPlans(db, site.offering, ADOPTION).approvals.open()
    adopted = ownership.adopted(key for each in approvals for key in each.keys)
    foundations = site.offering.policy.protected_accounts
    found = ownership.own_unrecorded(snapshot, site.offering.names, foundations, context.derived, remembered)
    news = {**dict.fromkeys(found, Origin.FOUND), **dict.fromkeys(adopted, Origin.ADOPTED)}
    news = {account: origin for account, origin in news.items() if not remembered.is_ours(account)}
    return replace(remembered, origins={**remembered.origins, **news}, news=news)


def looked_at(site: Site, snapshot: Snapshot, accounts: Iterable[str]) -> Snapshot:
    """Return the snapshot with what a person has to know of accounts to decide on them: their jobs, and the tree where
    the pass has read a part of it only; without these where they are unknown.
    """
    wanted = frozenset(accounts) - snapshot.active_jobs.keys()
    if not wanted:
        return snapshot
    parts = TREE - snapshot.complete
    try:
        seen = site.backend.observe(Scope(parts and TREE, jobs_of=wanted))
    except BackendError as error:
        log.warning("what %s has cannot be read: %s", ", ".join(sorted(wanted)), error)
        return snapshot
    found = snapshot.with_usage(seen)
    return found.with_tree(seen) if parts else found


def made_by(decision: Decision, snapshot: Snapshot) -> frozenset[str]:
    """Return the accounts that this decision makes on the cluster."""
    made = {fold(thing.account) for thing in objects_made(decision.allowed, ObjectKind.ACCOUNT)}
    return frozenset(made - snapshot.accounts.keys())


def has_news(site: Site, decision: Decision, snapshot: Snapshot, *, is_whole: bool) -> bool:
    """Return whether `write` has something to write down."""
    is_first = decision.ledger.is_first and _sees_accounts(site, snapshot, is_whole=is_whole)
    return bool(is_first or decision.ledger.news or decision.not_ours or made_by(decision, snapshot))


def _sees_accounts(site: Site, snapshot: Snapshot, *, is_whole: bool) -> bool:
    """Return whether the offering was looked at: the cluster was read (a mode that does not need it has an empty
    snapshot), and prefixes identify its accounts, or the pass was about all that Waldur names.
    """
    is_identified = is_whole or all(ownership.prefixes_of(site.offering.names))
    return is_identified and snapshot.complete >= TREE and bool(snapshot.accounts)


def write(site: Site, decision: Decision, snapshot: Snapshot, source: Source, *, is_whole: bool) -> None:
    """Write down what this decision has found out, and what it is about to make. Where that is not possible, additions
    go on: what has a prefix is found again. In a transaction that is open, raises StateError.
    """
    if not has_news(site, decision, snapshot, is_whole=is_whole):
        return
    found = {
        **decision.ledger.news,
        **dict.fromkeys(decision.not_ours, Origin.ASKED),
        **dict.fromkeys(made_by(decision, snapshot), Origin.MADE),
    }
    try:
        with writing(source) as db:
            ledger.write(
                db,
                site.backend.cluster,
                site.offering,
                found,
                is_seen=_sees_accounts(site, snapshot, is_whole=is_whole),
            )
            _end_questions(site, db, decision)
    except StateUnwritable as error:
        if isinstance(source, Db):
            raise
        log.warning("whose accounts these are cannot be written down: %s", error)


def _end_questions(site: Site, db: Db, decision: Decision) -> None:
    """Forget the questions that a person has answered, with a line in the journal."""
    adopted = {a for a, origin in decision.ledger.news.items() if origin is Origin.ADOPTED}
    held = HeldPlans(db, site.offering, ADOPTION)
    for each in held.approvals.open():
        accounts = ownership.adopted(each.keys)
        if accounts <= adopted:
            held.release(each.plan, each.keys)
            held.approvals.revoke(each.plan)
            text = f"adopted {', '.join(sorted(accounts))} for offering {site.offering.name}"
            journal.note(site.state_dir, site.offering, text, by=each.by, mode=ADOPTION)
            log.warning("%s, as %s approved", text, each.by)


def forget_questions(site: Site, decision: Decision, context: PolicyContext, snapshot: Snapshot) -> None:
    """Forget questions about accounts that Waldur names no more, or that are gone, or that nothing is planned for."""
    if Origin.ASKED not in decision.ledger.origins.values():
        return
    held = HeldPlans(site.state_dir, site.offering, ADOPTION)
    current = context.named & snapshot.accounts.keys()
    oldest = datetime.now(UTC) - ASKED_FOR
    for each in held.waiting():
        if not ownership.adopted(each.keys) & current or each.seen < oldest:
            held.drop(each.id)


def note_ended(site: Site, outcomes: Iterable[Outcome]) -> None:
    """Forget the accounts whose end was seen."""
    done = (outcome.action for outcome in outcomes if outcome.done)
    ended = [fold(thing.account) for thing in objects_ended(done, ObjectKind.ACCOUNT)]
    ledger.forget(site.state_dir, site.backend.cluster, site.offering, ended)
