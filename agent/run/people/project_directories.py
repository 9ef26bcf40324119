# SPDX-License-Identifier: MIT
"""Provision the project directories of allocations (`backend_settings.project_directory`), after their groups.

They delay nothing: a file system that is away costs its own part of the pass. An idle pass looks at the folder and at
the state file, and starts no process.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.core.actions import Action, fully_shown
from agent.core.errors import BackendError, ClusterBusy, SiteAgentError
from agent.core.host_actions import DirectoryHostAction, SetProjectQuota
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from agent.core.printable import shortlist
from agent.core.project_directories import NO_RECORD, DirectoryRecord, DirectoryRules
from agent.core.system_users import is_system_number
from agent.plan import project_directories as planner
from agent.plan.policy.rules import PolicyContext
from agent.plan.project_directories import DirectoryFacts, PlannedChanges
from agent.run.engine import Mode, Portion, Work
from agent.run.gate import Pass
from agent.run.handed_on import AccountsInStep
from agent.run.people.homes import head_node
from agent.state.hints import PROJECT_DIRECTORIES
from backends.storage import directories
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


class Directories(Mode[DirectoryFacts, PlannedDirectories]):
    """The directories of the accounts in step. In a pass that carries out a plan that a person was shown, what an
    account needs besides is left for the next pass.
    """

    key = KEY
    optional_name = "project directories"
    needs = AccountsInStep

    def __init__(self, run: Pass) -> None:
        super().__init__(run)
        self._host = head_node(run.site)
        self._records: dict[str, DirectoryRecord] = {}

    @property
    def _rules(self) -> DirectoryRules:
        rules = self.site.offering.project_directories
        assert rules is not None
        return rules

    def observe(self) -> DirectoryFacts | None:
        """Look what is due, and look again under the lock, where a pass goes on to apply. Return None where nothing
        is due.
        """
        in_step = self.run.result(AccountsInStep)
        if in_step is None or self.site.offering.project_directories is None:
            return None
        accounts = in_step.desired.members.keys() - in_step.desired.ended
        if not accounts:
            return None
        due, standing = self._looked(accounts)
        if not due:
            return None
        if self.run.applies:
            self.open.enter_context(self._host.lock)
            due, standing = self._looked(accounts)
        groups = {self._rules.group_of(account) for account in due if not standing.get(account)}
        facts = DirectoryFacts(due, standing, self._records, self._numbers(groups))
        return replace(facts, present=self._present(facts))

    def plan(self, facts: DirectoryFacts) -> PlannedDirectories:
        in_step = self.run.result(AccountsInStep)
        found = planner.changes(facts, self._rules)
        changes = replace(found, of_account=fully_shown(found.of_account, self.run.shown))
        is_whole = not self.run.applies or (in_step is not None and in_step.is_whole)
        # What is left for the next pass may be held: only a plan of everything shows which held plans are gone.
        return PlannedDirectories(changes, Snapshot(self.site.backend.cluster), is_whole and changes == found)

    def _looked(self, accounts: Collection[str]) -> tuple[tuple[str, ...], Mapping[str, str]]:
        standing = directories.taken_places(self._rules.base_path, accounts)
        self._records = PROJECT_DIRECTORIES.all(self.site.state_dir, self.site.offering.uuid) or {}
        return planner.due(accounts, standing, self._records, self._rules), standing

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
                    self.site.offering.name,
                    error,
                )
                break
        return found

    def _numbers(self, groups: Collection[str]) -> Mapping[str, int]:
        """Return the numbers of groups that may own directories: by the offering's directory, else by this host.

        The host may not know a group of the directory for minutes yet. Raises SiteAgentError.
        """
        found = {}
        directory = registry.groups(self.site.offering) if groups else None
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

    def announce(self, work: Work[PlannedDirectories]) -> None:
        """Log, once each, the accounts that can have no directory now."""
        logged: dict[str, list[str]] = {}
        changed: dict[str, DirectoryRecord] = {}
        troubles = work.plan.changes.troubles
        for account, words in troubles.items():
            record = self._records.get(account, NO_RECORD)
            if record.logged != words:
                logged.setdefault(words, []).append(account)
                changed[account] = replace(record, logged=words)
        for words, accounts in logged.items():
            log.warning(
                "no project directory or quota for %s of offering %s: %s",
                shortlist(accounts, NAMED_AT_MOST),
                self.site.offering.name,
                words,
            )
        self._remember(changed)

    def portions(self, work: Work[PlannedDirectories]) -> Iterator[Portion]:
        """Yield the actions of one account after the other; the rest is left for the next pass."""
        for actions in list(work.plan.changes.of_account.values())[:ACCOUNTS_AT_MOST]:
            allowed = tuple(action for action in actions if work.allows(action))
            if allowed:
                yield Portion(allowed)

    def apply(self, actions: Sequence[DirectoryHostAction]) -> Sequence[Outcome]:
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

    def read_back(
        self, work: Work[PlannedDirectories], portion: Portion, outcomes: Sequence[Outcome]
    ) -> None:
        """Remember what is done: a tool that ends well has done it."""
        self.outcomes += outcomes
        quota = self._rules.quota
        changed = {}
        for outcome in outcomes:
            action = outcome.action
            assert isinstance(action, DirectoryHostAction)
            record = self._records.get(action.account, NO_RECORD)
            if outcome.error is not None:
                changed[action.account] = replace(record, logged=str(outcome.error))
            elif isinstance(action, SetProjectQuota):
                changed[action.account] = DirectoryRecord(quota=quota.mark() if quota else "")
            elif record.logged:
                changed[action.account] = replace(record, logged="")
        self._remember(changed)

    def conclude(self, error: SiteAgentError | None) -> None:
        if isinstance(error, ClusterBusy):
            log.warning(
                "project directories of %s: another pass is at work: %s", self.site.offering.name, error
            )
            self.add_to_report(error)
        else:
            super().conclude(error)

    def _remember(self, changed: Mapping[str, DirectoryRecord]) -> None:
        self._records |= changed
        PROJECT_DIRECTORIES.put(self.site.state_dir, self.site.offering.uuid, changed)
