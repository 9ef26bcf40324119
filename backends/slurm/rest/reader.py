# SPDX-License-Identifier: MIT
"""Reads a cluster through slurmrestd: one request brings accounts, associations, defaults and limits of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from agent.core.account_names import fold
from agent.core.errors import BackendUnavailable, ParseError
from agent.core.model import Part, Snapshot
from backends.base import Reread, Scope
from backends.slurm.commands import marked_qos
from backends.slurm.grouping import portioned
from backends.slurm.parse import ROOT, Qos
from backends.slurm.reader import can_name, jobs_of, joined, limited_by_qos, unread
from backends.slurm.rest.client import RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.rows import (
    ASSOCIATIONS,
    Rows,
    below,
    children,
    counts,
    default_accounts,
    parse,
    tres_name,
    unread_above,
    users_of_qos,
)
from backends.slurm.schema import SlurmSettings

TREE = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.USER_LIMITS, Part.DEFAULT_ACCOUNTS})
# An address then has 26 KB with the longest names, and 3 KB with usual ones: slurmrestd takes 32 KB, and not 94
# (24.11.5, 26.05.5).
NAMES_PER_READ = 100
# How many levels of accounts are asked for one after the other, where it was not read before what is above what.
LEVELS_AT_MOST = 50
# slurmdbd's placeholder before the TRES that sites define; no job has it.
PLACEHOLDER = "dynamic_offset"


class RestReader:
    """Reads the cluster that the settings name. What is used of limits stays unknown: slurmrestd does not report it."""

    def __init__(self, settings: SlurmSettings, client: RestClient, jobs: RestJobs) -> None:
        self._settings = settings
        self._client = client
        self._jobs = jobs
        # The account above each, as it was last seen.
        self._parents: Mapping[str, str] = {}

    @property
    def cluster(self) -> str:
        return self._settings.cluster_name

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        """Read the parts of the scope, all at once. Raises BackendError."""
        wanted: list[Callable[[], Snapshot]] = []
        keys = self._settings
        is_limited_by_qos = (
            keys.own_qos is not None and keys.own_qos.holds_limits and Part.ACCOUNTS in scope.parts
        )
        if scope.parts & TREE:
            # Whose QoS hold limits is seen by who else has them.
            reread = None if is_limited_by_qos else scope.reread
            wanted.append(partial(self._reread, reread) if reread else self.tree)
        if Part.TRES in scope.parts:
            wanted.append(lambda: Snapshot(self.cluster, tres=self.tres(), complete=frozenset({Part.TRES})))
        names_qos = Part.QOS in scope.names and keys.qos_enforcement_enabled
        qos: dict[str, Qos] = {}
        if names_qos or is_limited_by_qos or (Part.QOS in scope.parts and keys.own_qos):
            wanted.append(lambda: self._qos(qos, with_limits=is_limited_by_qos))
        if Part.PARTITIONS in scope.names and (
            keys.default_partition or keys.enforce_offering_partitions or keys.qos_enforcement_enabled
        ):
            wanted.append(self._partitions)
        if scope.jobs_of:
            wanted.append(
                lambda: jobs_of(self.cluster, scope.jobs_of, lambda: self._jobs.active(scope.jobs_of))
            )
        with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
            whole = joined(self.cluster, list(pool.map(lambda read: read(), wanted)))
        return limited_by_qos(whole, qos) if is_limited_by_qos else whole

    def rows(self, accounts: Set[str] | None = None) -> Rows:
        """Read all associations; or those in these accounts and in all above them, by which own values are told from
        inherited ones. Too many are not asked for by name. Raises BackendError.
        """
        named: set[str] = set()
        if accounts is not None and can_name("account", accounts):
            named = self._with_above({ROOT, *accounts})
        for _ in range(LEVELS_AT_MOST):
            document = self._associations("account", named)
            above = unread_above(document) if named else frozenset()
            if above <= named:
                break
            # An account that was not seen before, or was below another one.
            named = self._with_above(named | above)
        rows = parse(document, self.cluster)
        seen = {row.account: row.parent for row in rows.by_key.values() if not row.user}
        self._parents = {**self._parents, **seen} if named else seen
        return rows

    def _with_above(self, accounts: Set[str]) -> set[str]:
        """Return accounts with all above them, as they were last seen."""
        named, left = set(accounts), list(accounts)
        while left:
            if (above := self._parents.get(left.pop(), "")) and above not in named:
                named.add(above)
                left.append(above)
        return named

    def _associations(self, kind: str = "", names: Set[str] = frozenset()) -> Mapping[str, Any]:
        """Read the associations of these names of a kind, or all on this cluster. Raises BackendError."""
        where = [[(kind, ",".join(some))] for some in portioned([sorted(names)], NAMES_PER_READ)]
        found: list[Mapping[str, Any]] = []
        for params in where or [[]]:
            document = self._client.read(ASSOCIATIONS, [("cluster", self.cluster), *params])
            found += items(document, "associations")
        return {"associations": found}

    def tree(self) -> Snapshot:
        return self._snapshot(self.rows())

    def around(self, accounts: Set[str]) -> Snapshot:
        """Read these accounts, and those right below them, with all in them. Raises BackendError."""
        return self._snapshot(self.rows(accounts | self._below(accounts)))

    def _below(self, accounts: Set[str]) -> frozenset[str]:
        """Read which accounts are right below these. Raises BackendError."""
        if not accounts:
            return frozenset()
        asked = accounts if can_name("account", accounts) else frozenset()
        return children(self._associations("parent_account", asked), accounts)

    def _snapshot(self, rows: Rows) -> Snapshot:
        return rows.snapshot(self.cluster, with_inherited_qos=self._settings.qos_enforcement_enabled)

    def _reread(self, reread: Reread) -> Snapshot:
        """Read again what changes were about, whole where that is too much. Raises BackendError."""
        # Nothing ends the root account, and the accounts of all others may be right below it.
        above = reread.with_children - {ROOT}
        accounts = reread.accounts.union(*map(reread.before.children_of, above))
        if can_name("account", accounts):
            accounts |= self._below(above)
        if not (can_name("account", accounts) and can_name("user", reread.users)):
            return self.tree()
        seen = self._snapshot(self.rows(accounts))
        if reread.users:
            defaults = default_accounts(self._associations("user", reread.users))
            seen = replace(seen, default_accounts=defaults)
        return seen.merged_into(reread.before, accounts | seen.accounts.keys(), reread.users)

    def tres(self) -> frozenset[str]:
        """Return the names of what the cluster tracks. Raises BackendError."""
        document = self._client.read("slurmdb/tres/")
        # v0.0.40 writes the name of the list in capitals; the reference saw both.
        listed = "tres" if "tres" in document else "TRES"
        names = frozenset(map(tres_name, items(document, listed))) - {PLACEHOLDER}
        if "cpu" not in names:
            raise ParseError("GET slurmdb/tres/", "", "every cluster has the TRES cpu")
        return names

    def qos(self, *, with_limits: bool = False) -> dict[str, Qos]:
        """Return all QoS by name, with their GrpTRESMins where asked. Raises BackendError."""
        found = {}
        for item in items(self._client.read("slurmdb/qos/"), "qos"):
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise ParseError("GET slurmdb/qos/", str(item)[:80], "a QoS has no name")
            limits = _limits(item) if with_limits else {}
            found[fold(name)] = Qos(str(item.get("description") or ""), limits)
        if not found:
            raise ParseError("GET slurmdb/qos/", "", "every cluster has the QoS normal")
        return found

    def _qos(self, found: dict[str, Qos], *, with_limits: bool) -> Snapshot:
        """Read the QoS of all clusters into `found` as well."""
        found |= self.qos(with_limits=with_limits)
        made, foreign = marked_qos({name: each.description for name, each in found.items()}, self.cluster)
        return Snapshot(
            self.cluster,
            qos=frozenset(found),
            made_qos=made,
            foreign_qos=foreign,
            complete=frozenset({Part.QOS}),
        )

    def _partitions(self) -> Snapshot:
        """Read the partitions from slurmctld: slurmdbd knows none, and takes any name. Raises BackendError."""
        found = set()
        try:
            document = self._client.read("slurm/partitions/")
        except BackendUnavailable as error:
            return unread(self.cluster, Part.PARTITIONS, error)
        for item in items(document, "partitions"):
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise ParseError("GET slurm/partitions/", str(item)[:80], "a partition has no name")
            found.add(fold(name))
        return Snapshot(self.cluster, partitions=frozenset(found), complete=frozenset({Part.PARTITIONS}))

    def users_of_qos(self) -> dict[str, list[str]]:
        """Return who has each QoS, on all clusters: QoS belong to none. Raises BackendError."""
        return users_of_qos(self._client.read(ASSOCIATIONS))


def _limits(item: Mapping[str, Any]) -> dict[str, int]:
    """Return the GrpTRESMins of a QoS. Raises ParseError where the version does not show them (v0.0.40)."""
    minutes = below(item, "limits", "max", "tres", "minutes")
    if "total" not in minutes:
        why = "this version shows no GrpTRESMins of a QoS: leave rest_api.api_version out, or apply_limits_to_qos"
        raise ParseError("GET slurmdb/qos/", str(item.get("name")), why)
    return counts(minutes["total"])
