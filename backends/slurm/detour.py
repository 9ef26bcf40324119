# SPDX-License-Identifier: MIT
"""Takes a partition from users whose default account it is in, where SLURM refuses that although other partitions of
the account stay (24.11): for that moment their default is an account above, of Waldur's, which takes no jobs of theirs.

    add user name=ann cluster=c account=project DefaultAccount=project GrpSubmitJobs=0 MaxSubmitJobs=0 fairshare=parent
    remove user where name=ann account=a_one partition=gpu cluster=c
    modify user where name=ann cluster=c set DefaultAccount=a_one
    remove user where name=ann account=project cluster=c

Where it is cut off, the next pass sees a default account with these marks (`Snapshot.put_aside`), and sets it back
(`agent.plan.existing_accounts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from agent.core.actions import ClusterAction, only
from agent.core.association_actions import RemovePartition
from agent.core.errors import BackendError, CommandFailed, JobsStillActive
from agent.core.model import Snapshot
from agent.core.plans import Outcome
from backends.slurm.commands import Batch, CommandBuilder
from backends.slurm.jobs import Jobs

REFUSAL = "You can not remove the default account of a user"


def is_needed(batch: Batch, error: BackendError) -> bool:
    """Return whether the command was refused because it takes partitions of default accounts."""
    removals = only(RemovePartition, batch.actions)
    is_of_defaults = len(removals) == len(batch.actions) and all(action.is_default for action in removals)
    return is_of_defaults and isinstance(error, CommandFailed) and REFUSAL in error.stderr


class Detour:
    """Runs the commands. `write` runs one and returns its error; `run` runs a batch, and each action that it is refused
    for alone.
    """

    def __init__(
        self,
        builder: CommandBuilder,
        jobs: Jobs,
        tree: Callable[[], Snapshot],
        write: Callable[[tuple[str, ...]], BackendError | None],
    ) -> None:
        self._builder = builder
        self._jobs = jobs
        self._tree = tree
        self._write = write

    def remove(
        self, refused: Batch, error: BackendError, run: Callable[[Batch], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        """Yield an outcome for each action of a batch that was refused with this error."""
        try:
            busy = self._busy(refused)
            yield from (Outcome(action, waits) for action, waits in busy.items())
            idle = [action for action in refused.actions if action not in busy]
            other = self._account_above(idle) if idle else ""
        except BackendError as unread:
            yield from (Outcome(action, unread) for action in refused.actions)
            return
        if not other:
            refusal = BackendError(
                f"{error}. Going by another default account needs one above {refused.actions[0].account} that is "
                "Waldur's (a project's or customer's) and that none of these users is in: take them out of one, or "
                "set another default account of theirs, and the next pass removes the partition"
            )
            yield from (Outcome(action, refusal) for action in idle)
            return
        for batch in self._builder.batches(idle):
            yield from self._around(batch, other, run)

    def _around(
        self, batch: Batch, other: str, run: Callable[[Batch], Iterator[Outcome]]
    ) -> Iterator[Outcome]:
        aside, back, away = self._builder.around(only(RemovePartition, batch.actions), other)
        if failed := self._write(aside):
            yield from (Outcome(action, failed) for action in batch.actions)
            return
        outcomes = list(run(batch))
        failed = self._write(back) or self._write(away)
        yield from (replace(each, error=each.error or failed) for each in outcomes)

    def _busy(self, batch: Batch) -> dict[ClusterAction, BackendError]:
        """Return those whose jobs still need the partition: nobody's default moves for a removal that is refused."""
        (account,) = {action.account for action in batch.actions}
        (partition,) = {action.partition for action in only(RemovePartition, batch.actions)}
        active = self._jobs.active({account}, partition) or {}
        return {
            action: JobsStillActive(
                f"user {action.user} has {active[account, action.user]} active jobs in account {account}"
                f"{f' on partition {partition}' if partition else ''}; the removal goes on in a later pass"
            )
            for action in only(RemovePartition, batch.actions)
            if active.get((account, action.user))
        }

    def _account_above(self, actions: list[ClusterAction]) -> str:
        """Return the nearest account above that is Waldur's and that none of the users is in, empty if there is none.
        In no other could the next pass take away what is left where this is cut off: the gate protects it.
        """
        tree = self._tree()
        removals = only(RemovePartition, actions)
        users = {action.user for action in removals}
        above = [name for name in tree.above(removals[0].account) if all(name in a.aside for a in removals)]
        return next((account for account in above if not tree.users_of(account) & users), "")
