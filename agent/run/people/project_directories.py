# SPDX-License-Identifier: MIT
"""Provision the project directories of allocations (`backend_settings.project_directory`), after their groups.

They delay nothing: a file system that is away costs its own part of the pass. An idle pass looks at the folder and at
the state file, and starts no process.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import Action, wholly_shown
from agent.core.errors import BackendError, ClusterBusy, PlanRefused, SiteAgentError, StateError
from agent.core.host_actions import DirectoryHostAction, SetProjectQuota
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.project_directories import NO_RECORD, DirectoryRecord, DirectoryRules
from agent.core.system_users import is_system_number
from agent.plan import project_directories as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.project_directories import DirectoryFacts, PlannedChanges
from agent.run import engine
from agent.run.engine import Portion, Steps, Work
from agent.run.gate import Pass
from agent.run.people.homes import head_node
from agent.run.results import ProvisioningReport
from agent.run.site import Site
from agent.state import project_directories as remembered
from backends.storage import directories
from backends.storage.homes import HeadNode
from backends.usernames import nss, registry

log = logging.getLogger(__name__)

KEY = "project directories"
NAMED_AT_MOST = 5
ACCOUNTS_AT_MOST = 200
# As `lfs` shows that there is none.
NO_LIMIT = "0"


@dataclass(frozen=True)
class PlannedDirectories:
    """The actions of each account, in their order."""

    changes: PlannedChanges
    snapshot: Snapshot
    is_whole: bool = True
    context: PolicyContext = field(default_factory=PolicyContext)

    @property
    def actions(self) -> Sequence[Action]:
        return [action for several in self.changes.of_account.values() for action in several]


def plan(site: Site, accounts: Collection[str]) -> PlannedDirectories:
    """Return what `provision` would do for these accounts. Changes nothing. Raises SiteAgentError."""
    rules = site.offering.project_directories
    if rules is None or not accounts:
        return PlannedDirectories(PlannedChanges({}, {}), Snapshot(site.backend.cluster))
    return engine.plan_of(_Provisioning(site, rules, head_node(site), accounts).steps(is_whole=True))


def provision(
    run: Pass,
    accounts: Collection[str],
    *,
    is_whole: bool,
    host: HeadNode | None = None,
    shown: Collection[Action] | None = None,
) -> ProvisioningReport:
    """Make the directories that are missing and set their quotas. Raises no SiteAgentError: see `error`.

    `shown`: what somebody has looked at; an account that needs anything else is left for the next pass.
    """
    site, rules = run.site, run.site.offering.project_directories
    if rules is None or not accounts:
        return ProvisioningReport()
    host = host or head_node(site)
    work = _Provisioning(site, rules, host, accounts, shown)
    error: SiteAgentError | None = None
    try:
        if work.is_due():
            with host.lock:
                engine.reconcile(run, work.steps(is_whole=is_whole))
    except ClusterBusy as busy:
        log.warning("project directories of %s: another pass is at work: %s", site.offering.name, busy)
        error = busy
    except (BackendError, StateError, PlanRefused) as raised:
        log.error("project directories of offering %s: %s", site.offering.name, raised)
        error = raised
    return ProvisioningReport(tuple(work.outcomes), error)


class _Provisioning:
    """One call of `provision` or `plan`."""

    def __init__(
        self,
        site: Site,
        rules: DirectoryRules,
        host: HeadNode,
        accounts: Collection[str],
        shown: Collection[Action] | None = None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._site = site
        self._rules = rules
        self._host = host
        self._accounts = accounts
        self._shown = None if shown is None else frozenset(shown)
        self._records: dict[str, DirectoryRecord] = {}

    def is_due(self) -> bool:
        """Return whether there is anything to do or to tell. Raises BackendError."""
        return bool(self._looked()[0])

    def steps(self, *, is_whole: bool) -> Steps[DirectoryFacts, PlannedDirectories]:
        def planned(facts: DirectoryFacts) -> PlannedDirectories:
            found = planner.changes(facts, self._rules)
            changes = replace(found, of_account=wholly_shown(found.of_account, self._shown))
            # What is left for the next pass may be held: only a plan of everything shows which held plans are gone.
            return PlannedDirectories(
                changes, Snapshot(self._site.backend.cluster), is_whole and changes == found
            )

        return Steps(
            key=KEY,
            observe=self._observe,
            plan=planned,
            announce=self._announce,
            portions=_portions,
            apply=self._apply,
            read_back=self._note,
            failed=self._failed,
            tell=engine.nothing_to_tell,
        )

    def _looked(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        standing = directories.standing(self._rules.base_path, self._accounts)
        self._records = remembered.records(self._site.state_dir, self._site.offering.uuid)
        return planner.due(self._accounts, standing, self._records, self._rules), standing

    def _observe(self) -> DirectoryFacts:
        due, standing = self._looked()
        groups = {self._rules.group_of(account) for account in due if not standing.get(account)}
        facts = DirectoryFacts(due, standing, self._records, self._numbers(groups))
        return replace(facts, present=self._present(facts))

    def _present(self, facts: DirectoryFacts) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return the quotas that an operator, or an agent whose records are lost, may have set; none of a directory
        that was made and cut off before its quota. After one that cannot be read all others are unknown, too.
        """
        found: dict[str, tuple[tuple[str, str], ...]] = {}
        for account, project_id in planner.unrecorded(facts, self._rules).items():
            quota = self._rules.quota
            assert quota is not None
            try:
                limits = self._host.project_limits(project_id, quota.mount_point, of_group=quota.of_group)
                # What a group uses may be elsewhere.
                is_new = (
                    not quota.of_group
                    and all(value == NO_LIMIT for _, value in limits)
                    and directories.is_empty(self._rules.base_path, account)
                )
                found[account] = () if is_new else limits
            except BackendError as error:
                log.warning(
                    "the present quota of %s of offering %s is not known, so a new one counts as lower (budget "
                    "quotas_lowered): %s",
                    self._rules.path_of(account),
                    self._site.offering.name,
                    error,
                )
                break
        return found

    def _numbers(self, groups: Collection[str]) -> Mapping[str, int]:
        """Return the numbers of groups that may own directories: by the offering's directory, else by this host.

        The host may not know a group of the directory for minutes yet. Raises SiteAgentError.
        """
        found = {}
        directory = registry.groups(self._site.offering) if groups else None
        if directory is not None:
            try:
                directory.open()
                # A group that is not ours to fill is not ours to give files to.
                found = {
                    name: group.gid
                    for name, group in directory.read(groups).items()
                    if group.gid is not None and not group.obstacle
                }
            finally:
                directory.close()
        is_chosen = bool(self._rules.group_name)
        for name in set(groups) - found.keys():
            gid = nss.gid_of(name)
            # An account may be called like a group of the system; whoever names one in the settings means it.
            if gid and (is_chosen or (directory is None and not is_system_number(gid))):
                found[name] = gid
        return found

    def _announce(self, work: Work[PlannedDirectories]) -> None:
        """Log, once each, the accounts that can have no directory now."""
        told: dict[str, list[str]] = {}
        changed: dict[str, DirectoryRecord] = {}
        troubles = work.plan.changes.troubles
        for account, words in troubles.items():
            record = self._records.get(account, NO_RECORD)
            if record.told != words:
                told.setdefault(words, []).append(account)
                changed[account] = replace(record, told=words)
        for words, accounts in told.items():
            some = ", ".join(accounts[:NAMED_AT_MOST])
            more = f" and {len(accounts) - NAMED_AT_MOST} more" if len(accounts) > NAMED_AT_MOST else ""
            log.warning(
                "no project directory or quota for %s%s of offering %s: %s",
                some,
                more,
                self._site.offering.name,
                words,
            )
        self._remember(changed)

    def _apply(self, actions: Sequence[DirectoryHostAction]) -> Sequence[Outcome]:
        """Carry out the actions of one account. After one that fails the others wait."""
        outcomes: list[Outcome] = []
        for action in actions:
            outcomes.append(self._host.apply(action))
            error = outcomes[-1].error
            if isinstance(error, BackendError) and error.of_host:
                raise error
            if error is not None:
                break
        return outcomes

    def _note(self, _work: object, _portion: Portion, outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes
        quota = self._rules.quota
        changed = {}
        for outcome in outcomes:
            action = outcome.action
            assert isinstance(action, DirectoryHostAction)
            record = self._records.get(action.account, NO_RECORD)
            if outcome.error is not None:
                changed[action.account] = replace(record, told=str(outcome.error))
            elif isinstance(action, SetProjectQuota):
                changed[action.account] = DirectoryRecord(quota=quota.mark() if quota else "")
            elif record.told:
                changed[action.account] = replace(record, told="")
        self._remember(changed)

    def _failed(self, _work: object, portion: Portion, error: SiteAgentError) -> None:
        self.outcomes += [Outcome(action, error) for action in portion.actions]

    def _remember(self, changed: Mapping[str, DirectoryRecord]) -> None:
        self._records |= changed
        remembered.write(self._site.state_dir, self._site.offering.uuid, changed)


def _portions(work: Work[PlannedDirectories]) -> Iterator[Portion]:
    """Yield the actions of one account after the other; the rest is left for the next pass."""
    for actions in list(work.plan.changes.of_account.values())[:ACCOUNTS_AT_MOST]:
        allowed = tuple(action for action in actions if work.allows(action))
        if allowed:
            yield Portion(allowed)
