# SPDX-License-Identifier: MIT
"""Carries batches out, one after the other, under the cluster's lock; one outcome per action.

No command carries more than fits into a few seconds, and between two of them the lock is passed on to who waits for an
order. A batch that is refused is tried again in parts, and these action by action, so that one bad name fails no other
action. After a sign of an outage nothing more is tried. What rc 0 really did is not judged here: the caller reads the
cluster back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import groupby

from agent.core.account_names import fold
from agent.core.actions import (
    ClusterAction,
    DeleteQos,
    MoveAccount,
    ObjectKind,
    ObjectRef,
    RemoveMember,
    SetQos,
    only,
)
from agent.core.errors import (
    BackendError,
    BackendUnavailable,
    ClusterBusy,
    CommandFailed,
    DoneInPart,
    NotEmpty,
    PlanRefused,
)
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from backends.command_output import one_line
from backends.failure_propagation import FailurePropagation
from backends.lock import WriteLock
from backends.process import CommandMissing, CommandTooLong, Completed, Runner
from backends.slurm import detour, parse
from backends.slurm.commands import Batch, CommandBuilder
from backends.slurm.costs import Costs, kind_of, leading_actions
from backends.slurm.detour import Detour
from backends.slurm.jobs import Jobs
from backends.slurm.load_file import LoadFile
from backends.slurm.loader import Loader
from backends.slurm.programs import NO_ACCESS_TO_QOS, Programs, failure, output

log = logging.getLogger(__name__)

# So many commands are worth a look at who is in their accounts, after which they may be one.
WORTH_A_READ = 3


class Writer:
    """Applies actions to one cluster. `tree` reads its accounts and associations, `members` who is in some accounts."""

    def __init__(  # noqa: PLR0913  the parts of one cluster
        self,
        runner: Runner,
        builder: CommandBuilder,
        lock: WriteLock,
        *,
        programs: Programs,
        tree: Callable[[], Snapshot],
        members: Callable[[Set[str]], Snapshot],
        jobs: Jobs,
        costs: Costs,
    ) -> None:
        self._costs = costs
        self._runner = runner
        self._builder = builder
        self._lock = lock
        self._programs = programs
        self._tree = tree
        self._members = members
        self._jobs = jobs
        self._loader = Loader(runner, builder, lock, programs, costs)
        self._detour = Detour(builder, jobs, tree, self._error_of)

    def apply(self, actions: Sequence[ClusterAction], cluster: str) -> list[Outcome]:
        """Carry the actions out. `cluster` is the name under which the cluster was last seen, empty if never."""
        usable, outcomes = self._checked(actions)
        if not usable:
            return outcomes
        refused = len(outcomes)
        failures = FailurePropagation()
        try:
            for outcome in self._carried_out(usable, cluster, failures):
                failures.note(outcome)
                outcomes.append(outcome)
        except ClusterBusy as busy:
            if len(outcomes) == refused:
                raise
            tried = {outcome.action for outcome in outcomes}
            outcomes += [Outcome(action, busy) for action in usable if action not in tried]
        return outcomes

    def _carried_out(
        self, actions: Sequence[ClusterAction], cluster: str, failures: FailurePropagation
    ) -> Iterator[Outcome]:
        """Yield outcomes, each before the next command begins. Raises ClusterBusy."""
        loaded = set()
        for outcome in self._loader.load(actions, cluster):
            loaded.add(outcome.action)
            yield outcome
        left = self._builder.batches(action for action in actions if action not in loaded)
        for program, batches in groupby(left, key=lambda batch: batch.program):
            if program == "sacctmgr":
                with self._lock:
                    for kind, some in groupby(batches, key=lambda batch: type(batch.actions[0])):
                        if kind is RemoveMember:
                            leavers = [action for batch in some for action in batch.actions]
                            yield from self._removed(only(RemoveMember, leavers), failures)
                        else:
                            for batch in some:
                                yield from self._in_portions(batch, failures)
            else:
                # Jobs may take a while to end: others may write in the meantime.
                cancels = {batch: failures.error_for(batch.actions[0]) for batch in batches}
                yield from (Outcome(batch.actions[0], error) for batch, error in cancels.items() if error)
                yield from self._jobs.cancel([batch for batch, error in cancels.items() if not error])

    def _removed(self, actions: Sequence[RemoveMember], failures: FailurePropagation) -> Iterator[Outcome]:
        """End memberships, with as few commands as who is in their accounts allows: on 26.05 one takes the same time
        for one association as for two hundred (docs/performance.md). Between two of them an order may have had somebody
        join one of these accounts: each is made anew, of what is left.
        """
        left, can_look = actions, True
        while left:
            self._lock.give_way()
            stopped = {action: error for action in left if (error := failures.error_for(action))}
            yield from (Outcome(action, error) for action, error in stopped.items())
            left = [action for action in left if action not in stopped]
            batches = self._builder.batches(left)
            if can_look and len(batches) >= WORTH_A_READ:
                try:
                    batches = self._fewer(left)
                except BackendError as unread:
                    can_look = False
                    log.warning("%s; members are removed account by account", unread)
            for batch in batches[:1]:
                at_most = self._costs.actions_at_once(kind_of(batch.argv), batch.actions)
                some = only(RemoveMember, leading_actions(batch.actions, at_most))
                begun = set(some)
                left = [action for action in left if action not in begun]
                yield from self._run(self._builder.removal(some), failures)

    def _fewer(self, leavers: Sequence[RemoveMember]) -> list[Batch]:
        """Return the commands that end these memberships and no other, as it is now. Raises BackendError."""
        accounts = {leaver.account for leaver in leavers}
        there = self._members(accounts)
        # Who is in an account that is not found is unknown.
        is_known = accounts <= there.accounts.keys()
        return self._builder.removals(leavers, there.users_of) if is_known else self._builder.batches(leavers)

    def _in_portions(self, batch: Batch, failures: FailurePropagation) -> Iterator[Outcome]:
        """Run a batch in as many commands as its cost asks for."""
        left, kind = list(batch.actions), kind_of(batch.argv)
        while left:
            some = leading_actions(left, self._costs.actions_at_once(kind, left))
            parts = [batch] if len(some) == len(batch.actions) else self._builder.batches(some)
            begun = set(some)
            left = [action for action in left if action not in begun]
            for part in parts:
                self._lock.give_way()
                yield from self._run_possible(part, failures)

    def files(self, actions: Sequence[ClusterAction], cluster: str) -> list[LoadFile]:
        """Return what `apply` would load at once instead of running single commands."""
        return self._loader.planned(self._checked(actions)[0], cluster)

    def expected_s(self, actions: Sequence[ClusterAction], cluster: str) -> float:
        """Return how long `apply` will be at work on the accounting database, without waiting for others."""
        usable = self._checked(actions)[0]
        loaded, seconds = self._loader.expected(usable, cluster)
        # Members leave account by account in it: whether they share commands is known when it begins.
        left = self._builder.batches(action for action in usable if action not in loaded)
        return seconds + sum(
            self._costs.total_s(kind_of(batch.argv), batch.actions)
            for batch in left
            if batch.program == "sacctmgr"
        )

    def _checked(self, actions: Sequence[ClusterAction]) -> tuple[list[ClusterAction], list[Outcome]]:
        """Return the actions whose command can be written, and outcomes for those with a name SLURM cannot take."""
        usable, refused = [], []
        for action in actions:
            try:
                self._builder.single(action)
                usable.append(action)
            except PlanRefused as error:
                refused.append(Outcome(action, error))
        return usable, refused

    def _run_possible(self, batch: Batch, failures: FailurePropagation) -> Iterator[Outcome]:
        """Run the batch without the actions that must not happen any more, after what failed before them."""
        stopped = {action: error for action in batch.actions if (error := failures.error_for(action))}
        stopped |= not_empty([action for action in batch.actions if action not in stopped], self._tree)
        stopped |= parentless([action for action in batch.actions if action not in stopped], self._tree)
        stopped |= kept_qos([action for action in batch.actions if action not in stopped], self._users_of_qos)
        yield from (Outcome(action, error) for action, error in stopped.items())
        left = [action for action in batch.actions if action not in stopped]
        for rest in self._builder.batches(left) if stopped else [batch]:
            yield from self._run(rest, failures)

    def _users_of_qos(self) -> Mapping[str, Sequence[str]]:
        """Read who has each QoS of their own, on all clusters: QoS belong to none. Raises BackendError."""
        columns = f"format={','.join(parse.QOS_USER_COLUMNS)}"
        command = (*self._programs.sacctmgr_read, "show", "assoc", columns, "WOPLimits")
        return parse.users_of_qos(output(self._runner.read(command)))

    def _completed(self, argv: Sequence[str]) -> Completed:
        return self._runner.write((*self._programs.sacctmgr_write, *argv), self._lock)

    def _error_of(self, argv: Sequence[str]) -> BackendError | None:
        """Run a command of sacctmgr that is no action's own, and return its error."""
        try:
            return failure(self._completed(argv))
        except BackendError as error:
            return error

    def _run(
        self, batch: Batch, failures: FailurePropagation, *, by_detour: bool = True
    ) -> Iterator[Outcome]:
        try:
            completed = self._completed(batch.argv)
        except CommandMissing as missing:
            yield from (Outcome(action, missing) for action in batch.actions)
            return
        except CommandTooLong as too_long:
            if len(batch.actions) == 1:
                yield Outcome(batch.actions[0], too_long)
            else:
                yield from self._in_parts(batch, too_long, failures, by_detour=by_detour)
            return
        error = failure(completed)
        if error is None:
            kind = kind_of(batch.argv)
            self._costs.note(kind, self._costs.units_of(kind, batch.actions), completed.duration_s)
        if error is not None and by_detour:
            run = partial(self._run, failures=failures, by_detour=False)
            if detour.is_needed(batch, error):
                log.info("%s; going by another default account", error)
                yield from self._detour.remove(batch, error, run)
                return
            if self._gave_access(batch, error):
                yield from run(batch)
                return
        if error is None or isinstance(error, BackendUnavailable) or len(batch.actions) == 1:
            command = " ".join(completed.argv)
            if completed.returncode == 0 and completed.stderr.strip():
                log.warning("`%s` said: %s", command, one_line(completed.stderr))
            yield from (Outcome(a, error, (command,), completed.duration_s) for a in batch.actions)
            return
        yield from self._in_parts(batch, error, failures, by_detour=by_detour)

    def _gave_access(self, batch: Batch, error: BackendError) -> bool:
        """Return whether members' own QoS got the new default of their account, for the lack of which it was refused.
        They keep it: a later pass cannot tell it from what people gave them.
        """
        changes = only(SetQos, batch.actions)
        if not (changes and isinstance(error, CommandFailed) and NO_ACCESS_TO_QOS.search(error.stderr)):
            return False
        try:
            additions = self._builder.additions_of_qos(changes, self._tree().member_qos)
        except BackendError as unread:
            log.warning("%s; whose QoS lack it cannot be read: %s", error, unread)
            return False
        for command in additions:
            if failed := self._error_of(command):
                log.warning("%s; members' own QoS cannot get it: %s", error, failed)
                return False
        return bool(additions)

    def _in_parts(
        self, batch: Batch, error: BackendError, failures: FailurePropagation, *, by_detour: bool
    ) -> Iterator[Outcome]:
        parts, how = self._builder.batches(batch.actions), "account by account"
        if len(parts) == 1:
            parts, how = [self._builder.single(action) for action in batch.actions], "one by one"
        log.warning("%s; trying its %d actions %s", error, len(batch.actions), how)
        for part in parts:
            self._lock.give_way()
            stopped = {action: why for action in part.actions if (why := failures.error_for(action))}
            yield from (Outcome(action, why) for action, why in stopped.items())
            left = [action for action in part.actions if action not in stopped]
            for rest in self._builder.batches(left) if stopped else [part]:
                yield from self._run(rest, failures, by_detour=by_detour)


def not_empty(
    actions: Sequence[ClusterAction], read_tree: Callable[[], Snapshot]
) -> dict[ClusterAction, BackendError]:
    """Return the deletions of accounts that are not empty, with the error of each. `actions`: of one kind.

    Everything below a deleted account goes with it, and SLURM says nothing (22.05).
    """
    if not actions or ObjectRef(ObjectKind.ACCOUNT) not in actions[0].ends:
        return {}
    try:
        tree = read_tree()
    except BackendError as error:
        return dict.fromkeys(actions, error)
    below = {a: sorted(tree.children_of(a.account) | tree.users_of(a.account)) for a in actions}
    return {
        action: NotEmpty(
            f"account {action.account} is not empty: {', '.join(names[:5])} would lose access with it"
        )
        for action, names in below.items()
        if names
    }


def parentless(
    actions: Sequence[ClusterAction], read_tree: Callable[[], Snapshot]
) -> dict[ClusterAction, BackendError]:
    """Return the moves of accounts below one that is not there, with the error of each: SLURM says that it is done, and
    leaves the account where it is (24.11).
    """
    moves = only(MoveAccount, actions)
    if not moves:
        return {}
    try:
        there = read_tree().accounts.keys()
    except BackendError as error:
        return dict.fromkeys(moves, error)
    return {
        move: BackendError(
            f"account {move.account} stays below {move.before}: there is no other account {move.after} to move it "
            "below. The next pass plans anew"
        )
        for move in moves
        if move.after not in there - {move.account}
    }


def kept_qos(
    actions: Sequence[ClusterAction], users_of_qos: Callable[[], Mapping[str, Sequence[str]]]
) -> dict[ClusterAction, BackendError]:
    """Return the deletions of QoS that are still in use, on any cluster of this slurmdbd, with the error of each."""
    deletions = only(DeleteQos, actions)
    if not deletions:
        return {}
    try:
        users = users_of_qos()
    except BackendError as error:
        return dict.fromkeys(deletions, error)
    return {
        action: DoneInPart(
            f"QoS {action.account} is left: {', '.join(dict.fromkeys(found[:5]))} has it. When it is no longer "
            f"needed, remove it by hand (sacctmgr remove qos where name={action.account})"
        )
        for action in deletions
        if (found := users.get(fold(action.account)))
    }
