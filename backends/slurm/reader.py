# SPDX-License-Identifier: MIT
"""Reads a cluster: one command per part, all at once, joined to one snapshot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from agent.core.errors import BackendError, BackendUnavailable, CommandFailed, ParseError
from agent.core.model import Part, Snapshot
from backends.base import ClusterHints, Reread, Scope
from backends.free_text import only_these
from backends.process import CommandMissing, Runner
from backends.slurm import parse
from backends.slurm.allowed_names import is_usable
from backends.slurm.commands import marked_qos
from backends.slurm.jobs import JobCounts, Jobs
from backends.slurm.programs import Programs, output, streamed
from backends.slurm.schema import SlurmSettings

log = logging.getLogger(__name__)

# What a release says of columns that it does not have: `lft` and `rgt` end with 23.02, `lineage` begins with 23.11.
UNKNOWN_FIELD = "Unknown field"
# Remembered in place of the last column where there is neither (slurm-emulator).
BY_PARENTS = "parentname"
# Of so many users or accounts at most one command asks by name: each name costs, and a command has room for so many.
NAMED_AT_MOST = 500
# In a line of the log.
LISTED_AT_MOST = 5

JOINED = tuple(field.name for field in fields(Snapshot) if field.name != "cluster")

Read = TypeVar("Read")


class Reader:
    """Reads one cluster."""

    def __init__(
        self,
        settings: SlurmSettings,
        runner: Runner,
        programs: Programs,
        jobs: Jobs,
        seen_cluster: str,
        tree_columns: ClusterHints[str],
    ) -> None:
        """`tree_columns`: the last of the columns by which trees were read, by the cluster's name in the settings."""
        self._settings = settings
        self._runner = runner
        self._programs = programs
        self._jobs = jobs
        self._where = (f"cluster={settings.cluster_name}",) if settings.cluster_name else ()
        # The name under which it was last seen, empty if never.
        self.seen_cluster = seen_cluster
        self._tree_columns = tree_columns
        # How many accounts and associations it had when it was last seen.
        self.seen_rows = 0

    @property
    def cluster(self) -> str:
        return self._settings.cluster_name or self.seen_cluster or "default"

    @property
    def is_placed(self) -> bool:
        """Whether each association has its place among all others, as far as it is known: up to 23.02."""
        return self._known_column == parse.PLACED_COLUMNS[-1]

    @property
    def tree_way(self) -> str:
        """How this cluster's tree is read, after it was."""
        if not self._places:
            return "the tree is read by the parent of each account (parentname)"
        return (
            f"the tree is read by {'places (lft, rgt)' if self.is_placed else 'paths (lineage)'} with WOPInfo"
        )

    @cached_property
    def _known_column(self) -> str:
        return self._tree_columns.read().get(self._settings.cluster_name, parse.PLACED_COLUMNS[-1])

    @cached_property
    def _lists_defaults(self) -> bool:
        """Whether this cluster's programs list default associations alone: slurm-emulator does not."""
        return self._known_column != BY_PARENTS

    @cached_property
    def _places(self) -> list[tuple[str, ...]]:
        """What this cluster's programs may show in place of parents, first what they showed last; nothing where they
        refused all lately.
        """
        ways = (parse.PLACED_COLUMNS, parse.LINEAGE_COLUMNS) if self._known_column != BY_PARENTS else ()
        return sorted(ways, key=lambda columns: columns[-1] != self._known_column)

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        """Read the parts of the scope, one command each, all at once: a read is 180 ms of waiting and 4 ms of work
        (22.05). Raises BackendError.

        Default accounts are complete where everybody in the tree was listed among the users; without a tree
        that is unknown. Who was added between the two reads makes them incomplete for this time.
        """
        qos: dict[str, parse.Qos] = {}
        reread = scope.reread if scope.reread and self._is_askable(scope.reread) else None
        wanted = [*self._parts(scope, reread, qos), *self._asked(scope)]
        self._lists_defaults  # noqa: B018  as remembered before the reads, one of which may come to know more
        with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
            parts = list(pool.map(lambda read: read(), wanted))
        whole = joined(self.cluster, parts)
        if reread:
            whole = whole.merged_into(reread.before, reread.accounts, reread.users)
            self.seen_rows = len(whole.accounts) + len(whole.associations)
        made, foreign = marked_qos(
            {name: each.description for name, each in qos.items()},
            self._settings.cluster_name or self.seen_cluster,
        )
        whole = replace(whole, made_qos=made, foreign_qos=foreign)
        if self._is_limited_by_qos and qos:
            whole = limited_by_qos(whole, qos)
        else:
            whole = replace(whole, qos_limits={name: qos[name].limits for name in made if qos[name].limits})
        if Part.DEFAULT_ACCOUNTS not in whole.complete:
            return whole
        listed = whole.default_accounts
        unlisted = _unlisted(whole, listed, reread)
        if unlisted and self._lists_defaults:
            listed = {**listed, **self._users(unlisted)}
            unlisted = _unlisted(whole, listed, reread)
        complete = whole.complete
        if unlisted or Part.ASSOCIATIONS not in whole.complete:
            complete -= {Part.DEFAULT_ACCOUNTS}
        if unlisted:
            log.warning(
                "sacctmgr show user omits %s (%s in all) who have associations: the default accounts are taken "
                "as not read",
                unlisted[0],
                len(unlisted),
            )
        if not all(listed.values()):
            listed = {user: account for user, account in listed.items() if account}
        return replace(whole, default_accounts=listed, complete=complete)

    @property
    def _is_limited_by_qos(self) -> bool:
        own = self._settings.own_qos
        return own is not None and own.holds_limits

    def _is_askable(self, reread: Reread) -> bool:
        """Return whether rows can be asked for by name. Whose QoS hold limits is seen by who else has them; what is
        below an account, in the whole tree.
        """
        named = (("account", reread.accounts), ("user", reread.users))
        return (
            bool(reread.accounts)
            and not reread.with_children
            and not self._is_limited_by_qos
            and all(can_name(kind, names) for kind, names in named)
        )

    def _parts(
        self, scope: Scope, reread: Reread | None, qos: dict[str, parse.Qos]
    ) -> Iterator[Callable[[], Snapshot]]:
        """Yield a read for each part. The limits of accounts are in `qos`, where QoS of their own hold them."""
        readers: dict[Part, Callable[[], Snapshot]] = {
            Part.ACCOUNTS: (lambda: self._branches(reread.accounts)) if reread else self.tree,
            Part.DEFAULT_ACCOUNTS: lambda: self._default_accounts(reread.users if reread else None),
            Part.TRES: lambda: Snapshot(
                self.cluster,
                tres=parse.tres_names(self._sacctmgr("list", "tres", "format=type,name")),
                complete=frozenset({Part.TRES}),
            ),
        }
        yield from (read for part, read in readers.items() if part in scope.parts)
        has_own = self._settings.own_qos is not None and Part.QOS in scope.parts
        limits = self._is_limited_by_qos and Part.ACCOUNTS in scope.parts
        if has_own or limits or (self._settings.qos_enforcement_enabled and Part.QOS in scope.names):
            yield lambda: self._qos(qos)

    def _asked(self, scope: Scope) -> Iterator[Callable[[], Snapshot]]:
        """Yield a read for each thing that is asked for where a plan needs it."""
        keys = self._settings
        if Part.PARTITIONS in scope.names and (
            keys.default_partition or keys.enforce_offering_partitions or keys.qos_enforcement_enabled
        ):
            yield self._partitions
        if scope.jobs_of:
            yield lambda: jobs_of(self.cluster, scope.jobs_of, lambda: self._jobs.active(scope.jobs_of))
        if scope.usage_of:
            yield lambda: self._limit_usage(scope.usage_of)

    def tree(self) -> Snapshot:
        """Read the accounts, associations and limits of users. Raises BackendError."""
        tree = self._placed_tree()
        # Own values only: what is inherited is not ours to change, and resolving it doubles the time of the read.
        if tree is None:
            tree = self._associations(parse.associations, parse.ASSOCIATION_COLUMNS, "WOPLimits")
        found = self._snapshot(tree)
        self.seen_cluster = min(tree.clusters)
        self.seen_rows = len(tree.accounts) + len(tree.associations)
        return found

    def members(self, accounts: Set[str]) -> Snapshot:
        """Read who is in these accounts, by name where one command can name them. Raises BackendError."""
        return self._branches(frozenset(accounts)) if can_name("account", accounts) else self.tree()

    def _branches(self, accounts: frozenset[str]) -> Snapshot:
        """Read these accounts and what is in them; not where they stand, but below what. Raises BackendError."""
        named = f"account={','.join(sorted({parse.ROOT, *accounts}))}"
        return self._snapshot(
            self._associations(
                lambda lines: parse.associations(lines, whole=False),
                parse.ASSOCIATION_COLUMNS,
                named,
                "WOPLimits",
            )
        )

    def _snapshot(self, tree: parse.Tree) -> Snapshot:
        if len(tree.clusters) > 1:
            raise BackendError(
                f"slurmdbd knows the clusters {', '.join(sorted(tree.clusters))}: set backend_settings.cluster_name "
                "to the one that this offering is about"
            )
        return Snapshot(
            cluster=self.cluster,
            accounts=tree.accounts,
            associations=tree.associations,
            user_limits=tree.user_limits,
            member_qos=tree.member_qos,
            closed=tree.closed,
            put_aside=tree.put_aside,
            complete=frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.USER_LIMITS}),
        )

    def _placed_tree(self) -> parse.Tree | None:
        """Read the tree with where its rows are instead of parents: a fifth of the time, as slurmdbd runs a query for
        the parent of each account. None where this release shows nothing of the kind, or no parents follow from it.
        What does not work is not tried again, and what did is tried first by the next process. Raises BackendError.
        """
        while self._places:
            columns = self._places[0]
            try:
                tree = self._associations(partial(parse.associations, columns=columns), columns, "WOPInfo")
            except parse.Misplaced as error:
                remedy = ". slurmdbd -R repairs the tree" if columns == parse.PLACED_COLUMNS else ""
                log.warning("%s: parents are read one by one, which is slower%s", error, remedy)
                self._places.clear()
            except CommandFailed as error:
                if UNKNOWN_FIELD not in error.stderr:
                    raise
                del self._places[0]
                if not self._places:
                    self._remember(BY_PARENTS)
            else:
                self._remember(columns[-1])
                return tree
        return None

    def _remember(self, column: str) -> None:
        if column != self._known_column:
            self._known_column = column
            self._tree_columns.write({self._settings.cluster_name: column})

    def _associations(
        self, parser: Callable[[Iterable[str]], Read], columns: Sequence[str], *options: str
    ) -> Read:
        return self._streamed(parser, "show", "assoc", *self._where, f"format={','.join(columns)}", *options)

    def _qos(self, found: dict[str, parse.Qos]) -> Snapshot:
        """Read the QoS of all clusters into `found` as well, with their limits."""
        found |= parse.qos(self._sacctmgr("show", "qos", f"format={','.join(parse.QOS_COLUMNS)}"))
        return Snapshot(self.cluster, qos=frozenset(found), complete=frozenset({Part.QOS}))

    def _partitions(self) -> Snapshot:
        """Read the partitions from slurmctld: slurmdbd knows none, and takes any name (22.05). A host without scontrol
        knows none either.
        """
        cluster = self._settings.cluster_name
        where = (f"--clusters={cluster}",) if cluster else ()
        command = (self._programs.scontrol, "--all", "--oneliner", *where, "show", "partition")
        try:
            found = parse.partitions(output(self._runner.read(command)))
        except CommandMissing:
            return Snapshot(self.cluster)
        except BackendUnavailable as error:
            return unread(self.cluster, Part.PARTITIONS, error)
        return Snapshot(self.cluster, partitions=found, complete=frozenset({Part.PARTITIONS}))

    def _default_accounts(self, users: frozenset[str] | None = None) -> Snapshot:
        """Read the default accounts of these users, or of all: from their associations alone, as a list of users goes
        through all associations for each of them (4 s for 20,000, instead of 0.3; 22.05). Raises BackendError.
        """
        complete = frozenset({Part.DEFAULT_ACCOUNTS})
        names = sorted(users or ())
        if users is not None and not names:
            return Snapshot(self.cluster, complete=complete)
        if self._lists_defaults:
            who = only_these("user", names) if names else ()
            try:
                found = self._associations(
                    parse.default_associations, parse.DEFAULT_COLUMNS, *who, "OnlyDefaults", "WOPInfo"
                )
                return Snapshot(self.cluster, default_accounts=found, complete=complete)
            except parse.Unfiltered:
                self._lists_defaults = False
        return Snapshot(self.cluster, default_accounts=self._users(names), complete=complete)

    def _users(self, names: Sequence[str] = ()) -> dict[str, str]:
        """Read the default accounts of these users, or of all, "" where one has none. Raises BackendError."""
        # A user has one default account on each cluster; without a name, the one on slurm.conf's own is listed.
        who = (f"name={','.join(names)}",) if names and can_name("user", names) else ()
        columns = "format=user,defaultaccount"
        return self._streamed(parse.default_accounts, "show", "user", *who, *self._where, columns)

    def _streamed(self, parser: Callable[[Iterable[str]], Read], *words: str) -> Read:
        """Parse the lines of a read as they come. Raises BackendError; how the command ended comes first."""
        with closing(streamed(self._runner.lines((*self._programs.sacctmgr_read, *words)))) as lines:
            try:
                return parser(lines)
            except ParseError:
                for _ in lines:
                    pass
                raise

    def _sacctmgr(self, *words: str) -> str:
        return output(self._runner.read((*self._programs.sacctmgr_read, *words)))

    def _limit_usage(self, accounts: frozenset[str]) -> Snapshot:
        """Read what counts against the limits of accounts: slurmctld's own figures, by which it ends jobs.

        Running jobs are counted in every PriorityCalcPeriod. sacct would add up jobs that a reset or a decay has
        forgotten. An account that slurmctld does not show is skipped; without output the usage is unknown.
        """
        cluster = self._settings.cluster_name
        where = (f"--clusters={cluster}",) if cluster else ()
        names = only_these("accounts", accounts)
        command = (self._programs.scontrol, "--oneliner", *where, "show", "assoc_mgr")
        try:
            used = parse.limit_usage(output(self._runner.read((*command, *names, "flags=assoc"))), cluster)
            if self._is_limited_by_qos:
                # Of accounts that have no QoS of their own nothing is listed here.
                of_qos = (*command, *only_these("qos", accounts), "flags=qos")
                used |= parse.qos_usage(output(self._runner.read(of_qos)))
        except BackendError as error:
            some = sorted(accounts)[:LISTED_AT_MOST]
            log.warning("what is used of the limits of %s cannot be read: %s", ", ".join(some), error)
            return Snapshot(self.cluster)
        return Snapshot(self.cluster, used=used, complete=frozenset({Part.USAGE}))


def can_name(kind: str, names: Collection[str]) -> bool:
    """Return whether one read can ask for all of these by name."""
    return len(names) <= NAMED_AT_MOST and all(is_usable(kind, name) for name in names)


def jobs_of(cluster: str, accounts: frozenset[str], read: Callable[[], JobCounts | None]) -> Snapshot:
    """Return the active jobs of these accounts. Where they cannot be read, slurmctld is away and slurmdbd may not be:
    they are unknown, and what needs them waits. Where this host cannot ask, sacctmgr refuses what jobs still need.
    """
    try:
        counts = read()
    except BackendError as error:
        return unread(cluster, Part.JOBS, error)
    if counts is None:
        return Snapshot(cluster)
    of_accounts = dict.fromkeys(accounts, 0)
    for (account, _), number in counts.items():
        of_accounts[account] = of_accounts.get(account, 0) + number
    return Snapshot(cluster, active_jobs=of_accounts, active_users=counts, complete=frozenset({Part.JOBS}))


def unread(cluster: str, part: Part, error: BackendError) -> Snapshot:
    """Return a snapshot that says why a part which slurmctld has could not be read."""
    log.warning("%s of cluster %s cannot be read: %s", part.value, cluster, error)
    return Snapshot(
        cluster, unread={part: error.brief if isinstance(error, BackendUnavailable) else str(error)}
    )


def _unlisted(snapshot: Snapshot, listed: Mapping[str, str], reread: Reread | None) -> list[str]:
    """Return those of all, or of few, who have associations and are not listed among the users."""
    if reread:
        return sorted(user for user in reread.users - listed.keys() if snapshot.accounts_of(user))
    return sorted({user for _, user in snapshot.members() if user not in listed})


def limited_by_qos(snapshot: Snapshot, qos: Mapping[str, parse.Qos]) -> Snapshot:
    """Return the snapshot in which accounts that use a QoS of their own have that one's limits. One that has limits
    itself, from before, and none on its QoS keeps those.
    """
    limited = {
        name: replace(account, limits=qos[name].limits, limits_on_qos=True)
        for name, account in snapshot.accounts.items()
        if name in {account.default_qos, *account.qos}
        and snapshot.has_own_qos(name)
        and (qos[name].limits or not account.limits)
    }
    return replace(snapshot, accounts={**snapshot.accounts, **limited})


def joined(cluster: str, parts: Sequence[Snapshot]) -> Snapshot:
    """Join snapshots of several reads, each of which filled other fields."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name in JOINED:
            # What only one of them has is taken as it is: of a large cluster a copy takes megabytes.
            if value := getattr(part, name):
                whole[name] = whole[name] | value if name in whole else value
    return Snapshot(cluster, **whole)
