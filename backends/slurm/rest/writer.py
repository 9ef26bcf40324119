# SPDX-License-Identifier: MIT
"""Carries actions out through slurmrestd, one request after the other, under the lock of all writers of this host.

A request that is refused is sent again action by action, so that one bad name fails no other action. After a sign of an
outage nothing more is tried. What a yes really did is not judged here: the caller reads the cluster back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from urllib.parse import quote

from agent.core.account_names import fold
from agent.core.actions import (
    CancelJobs,
    ClusterAction,
    CreateQos,
    ObjectKind,
    ObjectRef,
    RemoveMember,
    SetLimits,
    SetQos,
    SetUserLimits,
    only,
)
from agent.core.association_actions import RemovePartition
from agent.core.errors import BackendError, BackendUnavailable, PlanRefused, SiteAgentError
from agent.core.model import Part
from agent.core.plans import Outcome
from backends.base import Scope
from backends.failure_propagation import FailurePropagation
from backends.lock import WriteLock
from backends.slurm.apply import kept_qos, not_empty
from backends.slurm.backend import SlurmBackend
from backends.slurm.detour import REFUSAL
from backends.slurm.grouping import portioned
from backends.slurm.programs import NO_ACCESS_TO_QOS
from backends.slurm.rest.client import RequestRefused, RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.reader import NAMES_PER_READ, RestReader
from backends.slurm.rest.requests import Request, RequestBuilder, accounts_of, in_kinds, is_for_commands
from backends.slurm.rest.rows import ASSOCIATIONS, Rows

log = logging.getLogger(__name__)

TREE = Scope(frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS}))
ELSEWHERE = (
    "sacctmgr of this host shows other associations in {account} than slurmrestd: nothing is changed. Let "
    "slurm_bin_path and SLURM_CONF lead to the same cluster"
)


class RestWriter:
    """Applies actions to one cluster. `commands`: those of this host, None where it has none."""

    def __init__(
        self,
        client: RestClient,
        reader: RestReader,
        jobs: RestJobs,
        lock: WriteLock,
        commands: SlurmBackend | None,
    ) -> None:
        self._commands = commands
        self._client = client
        self._reader = reader
        self._jobs = jobs
        self._lock = lock
        self._builder = RequestBuilder(reader.cluster)

    def apply(self, actions: Sequence[ClusterAction]) -> list[Outcome]:
        """Carry the actions out; one outcome for each. Raises BackendError where the rows cannot be read first."""
        usable, outcomes = self._checked(actions)
        if not usable:
            return outcomes
        with self._lock:
            batch = _Batch(self._client, self._builder, self._reader, self._lock, accounts_of(usable))
            for group in in_kinds(usable):
                done = list(batch.carry_out([a for a in group if not is_for_commands(a)], self._jobs))
                refused = {
                    outcome.action for outcome in done if self._commands and _is_known_refusal(outcome)
                }
                outcomes += (outcome for outcome in done if outcome.action not in refused)
                stopped, for_commands = batch.possible(
                    [a for a in group if is_for_commands(a) or a in refused]
                )
                outcomes += stopped
                outcomes += batch.done_by_commands(self._by_commands(for_commands, batch.rows))
        return outcomes

    def _by_commands(self, actions: Sequence[ClusterAction], rows: Rows) -> Sequence[Outcome]:
        """Carry out what has no request, or was refused where commands have a way around. They must see the
        associations that slurmrestd shows: else they change those of another cluster.
        """
        if not actions or not self._commands:
            return ()
        try:
            there = self._commands.observe(TREE)
        except BackendError as error:
            return [Outcome(action, error) for action in actions]
        usable, outcomes = [], []
        for action in actions:
            account, users = action.account, {getattr(action, "user", "")}
            if users == {""}:
                users |= there.users_of(account) | {user for name, user, _ in rows.by_key if name == account}
            here = {(row.user, fold(row.partition)) for user in users for row in rows.of_user(account, user)}
            seen = {(row.user, row.partition) for user in users for row in there.rows_of(account, user)}
            if account in there.accounts and here - {("", "")} == seen:
                usable.append(action)
            else:
                outcomes.append(Outcome(action, BackendError(ELSEWHERE.format(account=account))))
        return [*outcomes, *(self._commands.apply(usable) if usable else ())]

    def lines(self, actions: Sequence[ClusterAction]) -> list[str]:
        """Return the requests as a shell takes them, as far as they are known before the first is sent.

        Raises BackendError.
        """
        usable, _ = self._checked(actions)
        if not usable:
            return []
        batch = _Batch(self._client, self._builder, self._reader, self._lock, accounts_of(usable))
        lines: list[str] = []
        for group in in_kinds(usable):
            lines += batch.lines([action for action in group if not is_for_commands(action)])
            if self._commands:
                lines += self._commands.commands([action for action in group if is_for_commands(action)])
        return lines

    def _checked(self, actions: Sequence[ClusterAction]) -> tuple[list[ClusterAction], list[Outcome]]:
        usable, refused = [], []
        for action in dict.fromkeys(actions):
            try:
                if self._commands is None or not is_for_commands(action):
                    self._builder.check(action)
                usable.append(action)
            except (PlanRefused, BackendError) as error:
                refused.append(Outcome(action, error))
        return usable, refused


def _is_known_refusal(outcome: Outcome) -> bool:
    """Return whether commands have a way around a refusal: of a partition of a default account (24.11), which
    `backends.slurm.detour` takes; and of a default QoS that members' own lack which slurmrestd does not show as theirs,
    as they equal those of the account.
    """
    match outcome.action:
        case RemovePartition(is_default=True):
            return isinstance(outcome.error, RequestRefused) and REFUSAL in str(outcome.error)
        case SetQos():
            return isinstance(outcome.error, RequestRefused) and bool(
                NO_ACCESS_TO_QOS.search(str(outcome.error))
            )
    return False


class _Batch:
    """One call of `apply`: the rows of its accounts as they were read, and as the requests so far have changed them."""

    def __init__(
        self,
        client: RestClient,
        builder: RequestBuilder,
        reader: RestReader,
        lock: WriteLock,
        accounts: frozenset[str],
    ) -> None:
        self._client = client
        self._lock = lock
        self._builder = builder
        self._reader = reader
        self.rows = reader.rows(accounts)
        self._tres: frozenset[str] | None = None
        self._qos_users: Mapping[str, Sequence[str]] | None = None
        self._failures = FailurePropagation()

    def carry_out(self, group: Sequence[ClusterAction], jobs: RestJobs) -> Iterator[Outcome]:
        """Yield the outcomes of actions of one kind."""
        if not group:
            return
        possible: list[ClusterAction] = []
        made = frozenset(account.name for action in group for account in action.new_accounts())
        for action in group:
            error = self._impossible(action, made)
            if error is None:
                possible.append(action)
            else:
                yield from self.noted([Outcome(action, error)])
        if isinstance(group[0], CancelJobs):
            yield from self.noted(jobs.cancel(only(CancelJobs, possible)))
            return
        asked: set[ClusterAction] = set()
        for request in self._builder.requests(self._new(possible), self.rows):
            asked.update(request.actions)
            yield from self._run_possible(request)
        # There is nothing to change about what is not there, and nothing to make where it is.
        yield from (Outcome(action, None) for action in possible if action not in asked)

    def lines(self, group: Sequence[ClusterAction]) -> Iterator[str]:
        if cancelled := only(CancelJobs, group):
            for action in cancelled:
                whose = f" of {action.user}" if action.user else ""
                listed = self._client.line("GET", "slurm/jobs/")
                one = self._client.line("DELETE", "slurm/job/JOB")
                yield f"{listed}  # then, for each active job{whose} in {action.account}: {one}"
            return
        for request in self._builder.requests(group, self.rows):
            yield self._client.line(request.method, request.path, request.params, request.body)
            self._note_done(request)

    def _new(self, actions: Sequence[ClusterAction]) -> Sequence[ClusterAction]:
        """Return the actions without QoS that are there: to post one again would change it. Raises BackendError."""
        if not only(CreateQos, actions):
            return actions
        there = self._reader.qos()
        return [action for action in actions if action.account not in there]

    def _impossible(self, action: ClusterAction, made: frozenset[str]) -> SiteAgentError | None:
        """Return why an action must not be tried; `made`: the accounts that its own kind is about to make."""
        try:
            error = self._failures.error_for(action)
            if error is None and getattr(action, "parent", "") not in made:
                error = self._builder.refusal(action, self.rows)
            if error is None and isinstance(action, SetLimits | SetUserLimits):
                if self._tres is None:
                    self._tres = self._reader.tres()
                unknown = sorted({name for name, _ in action.after} - self._tres)
                if unknown:
                    error = RequestRefused(f"this cluster does not track the TRES {', '.join(unknown)}")
        except BackendError as unread:
            return unread
        return error

    def _run_possible(self, request: Request) -> Iterator[Outcome]:
        """Send the request without the actions that must not happen any more, after what failed before them."""
        stopped = {action: error for action in request.actions if (error := self._failures.error_for(action))}
        left = [action for action in request.actions if action not in stopped]
        stopped |= not_empty(left, lambda: self._reader.around({action.account for action in left}))
        left = [action for action in request.actions if action not in stopped]
        stopped |= kept_qos(left, self._users_of_qos)
        yield from self.noted([Outcome(action, error) for action, error in stopped.items()])
        left = [action for action in request.actions if action not in stopped]
        for rest in self._builder.requests(left, self.rows) if stopped else [request]:
            yield from self._run(rest)

    def _users_of_qos(self) -> Mapping[str, Sequence[str]]:
        """Return who has each QoS, read once when the first is to go: slurmrestd cannot ask for those of one (24.11.5,
        26.05.5). Raises BackendError.
        """
        if self._qos_users is None:
            self._qos_users = self._reader.users_of_qos()
        return self._qos_users

    def _run(self, request: Request) -> Iterator[Outcome]:
        started_s = time.monotonic()
        error: BackendError | None = None
        try:
            with self._lock:
                self._client.write(request.method, request.path, request.params, request.body)
            self._note_done(request)
            if ObjectRef(ObjectKind.ACCOUNT) in request.actions[0].ends:
                self._forget_records(request.actions)
            self._forget_users({action.user for action in only(RemoveMember, request.actions)})
        except BackendError as raised:
            error = raised
        if (
            error is None
            or isinstance(error, BackendUnavailable)
            or error.of_host
            or len(request.actions) == 1
        ):
            line = self._client.line(request.method, request.path, request.params, request.body)
            duration_s = time.monotonic() - started_s
            yield from self.noted([Outcome(a, error, (line,), duration_s) for a in request.actions])
            return
        log.warning("%s; trying its %d actions one by one", error, len(request.actions))
        for action in request.actions:
            if stopped := self._failures.error_for(action):
                yield from self.noted([Outcome(action, stopped)])
                continue
            singles = self._builder.requests([action], self.rows)
            for single in singles:
                yield from self._run(single)
            if not singles:  # it is done, and what comes after it failed
                yield from self.noted([Outcome(action, error)])

    def _forget_records(self, actions: Sequence[ClusterAction]) -> None:
        """Delete the records of accounts that have no row left on any cluster. Raises BackendError.

        A record belongs to all clusters of slurmdbd, and what is deleted by it is deleted on all of them.
        """
        for action in actions:
            document = self._client.read(ASSOCIATIONS, [("account", action.account)])
            if document.get("associations") == []:
                self._client.write("DELETE", f"slurmdb/account/{action.account}")

    def _forget_users(self, users: Set[str]) -> None:
        """Delete the records of users who have no association left on any cluster, as sacctmgr does; but keep those
        whose AdminLevel is not known to be none: it was given by hand. Raises BackendError.
        """
        for some in portioned([sorted(users)], NAMES_PER_READ):
            document = self._client.read(ASSOCIATIONS, [("user", ",".join(some))])
            left = {fold(str(row.get("user"))) for row in items(document, "associations")}
            for record in (f"slurmdb/user/{quote(user)}" for user in some if fold(user) not in left):
                levels = [
                    each.get("administrator_level") for each in items(self._client.read(record), "users")
                ]
                if levels == [["None"]]:
                    self._client.write("DELETE", record)

    def _note_done(self, request: Request) -> None:
        kept = {key: row for key, row in self.rows.by_key.items() if key not in request.gone}
        self.rows = Rows({**kept, **{row.key: row for row in request.rows}})

    def possible(self, actions: Sequence[ClusterAction]) -> tuple[list[Outcome], list[ClusterAction]]:
        """Return outcomes for those of which something failed before, and the others."""
        stopped = {action: error for action in actions if (error := self._failures.error_for(action))}
        outcomes = [Outcome(action, error) for action, error in stopped.items()]
        return outcomes, [action for action in actions if action not in stopped]

    def done_by_commands(self, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
        """Take into the rows what commands have changed of them."""
        for outcome in self.noted(outcomes):
            is_of_rows = outcome.done and isinstance(outcome.action, RemovePartition | SetQos)
            done = only(ClusterAction, [outcome.action]) if is_of_rows else []
            for request in self._builder.requests(done, self.rows):
                self._note_done(request)
            yield outcome

    def noted(self, outcomes: Sequence[Outcome] | Iterator[Outcome]) -> Iterator[Outcome]:
        for outcome in outcomes:
            self._failures.note(outcome)
            yield outcome
