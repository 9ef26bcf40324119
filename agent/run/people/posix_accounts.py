# SPDX-License-Identifier: MIT
"""Provision people in a directory that follows Waldur (`account_source: waldur`): Waldur's names, numbers, homes and
shells. What does not agree is told and left as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.core.actions import Action
from agent.core.directory import DirectoryPeople, OnMismatch
from agent.core.errors import ConfigError, SiteAgentError
from agent.core.model import OfferingFacts, OfferingUser, Snapshot
from agent.core.plans import Outcome
from agent.plan import posix_accounts as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.posix_accounts import OldName
from agent.plan.usernames import SERVICE_PROVIDER
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.people.read_back import checked
from agent.run.site import Site
from backends.usernames.base import AccountDirectory

log = logging.getLogger(__name__)

KEY = "directory accounts"
AT_ONCE = 50


@dataclass(frozen=True)
class PlannedAccounts:
    """`told`: what differs and is left as it is. `old_names` as of `PlannedPeople`."""

    actions: Sequence[Action]
    told: Sequence[str]
    snapshot: Snapshot
    old_names: Mapping[str, OldName] = field(default_factory=dict)
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)


def provision(
    run: Pass,
    directory: AccountDirectory,
    users: Sequence[OfferingUser],
    facts: OfferingFacts,
    snapshot: Snapshot | None = None,
) -> tuple[list[Outcome], PlannedAccounts]:
    """Make the directory as Waldur has its users. Return the outcomes and the plan. `snapshot`: the cluster, by which
    the gate measures, where it was read. Raises SiteAgentError.
    """
    outcomes: list[Outcome] = []
    plan = engine.reconcile(run, steps(run.site, directory, users, facts, outcomes, snapshot)).plan
    name, told = run.site.offering.name, tuple(plan.told)
    if run.site.cache.logged.get(KEY, ()) != told:
        for words in told:
            log.error("directory of offering %s: %s", name, words)
        run.site.cache.logged[KEY] = told
    some = [f"directory: {words}" for words in told]
    if directory.account_rules and directory.account_rules.on_mismatch is OnMismatch.FAIL:
        run.report.problems += some
    else:
        run.report.notes += some
    return outcomes, plan


def can_follow(facts: OfferingFacts) -> bool:
    """Return whether the names of the offering's users are Waldur's: a directory follows no others."""
    return facts.plugin_options.get("username_generation_policy") != SERVICE_PROVIDER


def steps(
    site: Site,
    directory: AccountDirectory,
    users: Sequence[OfferingUser],
    facts: OfferingFacts,
    outcomes: list[Outcome],
    snapshot: Snapshot | None = None,
) -> Steps[DirectoryPeople, PlannedAccounts]:
    """Return the loop over the directory's people. Raises ConfigError where Waldur does not make the usernames."""
    rules = directory.account_rules
    assert rules is not None
    if not can_follow(facts):
        raise ConfigError(
            "account_source is `waldur`, and the offering's username_generation_policy `service_provider`: then nobody "
            "makes the names. Choose another policy in Waldur, or account_source `ldap`"
        )
    people = planner.with_entries(users)

    def planned(seen: DirectoryPeople) -> PlannedAccounts:
        found = planner.changes(users, seen, rules)
        seen_cluster = snapshot or Snapshot(site.backend.cluster)
        return PlannedAccounts(found.actions, found.told, seen_cluster, found.old_names)

    def portions(work: Work[PlannedAccounts]) -> Iterator[Portion]:
        allowed = work.decision.allowed
        for first in range(0, len(allowed), AT_ONCE):
            yield Portion(tuple(allowed[first : first + AT_ONCE]))

    def read_back(_work: object, _portion: Portion, done: Sequence[Outcome]) -> None:
        """Look once more: what would be planned again has not happened."""
        left = set(planner.changes(users, directory.read_accounts(people), rules).actions)
        outcomes.extend(checked(done, left))

    def failed(_work: object, portion: Portion, error: SiteAgentError) -> None:
        outcomes.extend(Outcome(action, error) for action in portion.actions)

    return Steps(
        key=KEY,
        observe=lambda: directory.read_accounts(people),
        plan=planned,
        portions=portions,
        apply=directory.apply,
        read_back=read_back,
        failed=failed,
        tell=engine.nothing_to_tell,
    )
