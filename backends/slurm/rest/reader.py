# SPDX-License-Identifier: MIT
"""Reads a cluster through slurmrestd: one request brings accounts, associations, defaults and limits of users."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from agent.core.account_names import fold
from agent.core.errors import BackendUnavailable, ParseError
from agent.core.model import Part, Snapshot
from backends.base import Scope
from backends.slurm.commands import marked_qos
from backends.slurm.reader import jobs_of, joined, unread
from backends.slurm.rest.client import RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.rows import Rows, parse, tres_name, users_of_qos
from backends.slurm.schema import SlurmSettings

TREE = frozenset({Part.ACCOUNTS, Part.ASSOCIATIONS, Part.USER_LIMITS, Part.DEFAULT_ACCOUNTS})
# slurmdbd's placeholder before the TRES that sites define; no job has it.
PLACEHOLDER = "dynamic_offset"


class RestReader:
    """Reads the cluster that the settings name. What is used of limits stays unknown: slurmrestd does not report it."""

    def __init__(self, settings: SlurmSettings, client: RestClient, jobs: RestJobs) -> None:
        self._settings = settings
        self._client = client
        self._jobs = jobs

    @property
    def cluster(self) -> str:
        return self._settings.cluster_name

    def observe(self, scope: Scope = Scope()) -> Snapshot:
        """Read the parts of the scope, all at once. Raises BackendError."""
        wanted: list[Callable[[], Snapshot]] = []
        if scope.parts & TREE:
            wanted.append(self.tree)
        if Part.TRES in scope.parts:
            wanted.append(lambda: Snapshot(self.cluster, tres=self.tres(), complete=frozenset({Part.TRES})))
        keys = self._settings
        names_qos = Part.QOS in scope.names and keys.qos_enforcement_enabled
        if names_qos or (Part.QOS in scope.parts and keys.own_qos):
            wanted.append(self._qos)
        if Part.PARTITIONS in scope.names and (
            keys.default_partition or keys.enforce_offering_partitions or keys.qos_enforcement_enabled
        ):
            wanted.append(self._partitions)
        if scope.jobs_of:
            wanted.append(
                lambda: jobs_of(self.cluster, scope.jobs_of, lambda: self._jobs.active(scope.jobs_of))
            )
        with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
            return joined(self.cluster, list(pool.map(lambda read: read(), wanted)))

    def rows(self) -> Rows:
        """Read all associations. Raises BackendError."""
        params = [("cluster", self.cluster)]
        return parse(self._client.read("slurmdb/associations/", params), self.cluster)

    def tree(self) -> Snapshot:
        enforces = self._settings.qos_enforcement_enabled
        return self.rows().snapshot(self.cluster, with_inherited_qos=enforces)

    def tres(self) -> frozenset[str]:
        """Return the names of what the cluster tracks. Raises BackendError."""
        document = self._client.read("slurmdb/tres/")
        # v0.0.40 writes the name of the list in capitals; the reference saw both.
        listed = "tres" if "tres" in document else "TRES"
        names = frozenset(map(tres_name, items(document, listed))) - {PLACEHOLDER}
        if "cpu" not in names:
            raise ParseError("GET slurmdb/tres/", "", "every cluster has the TRES cpu")
        return names

    def qos(self) -> dict[str, str]:
        """Return the descriptions of all QoS by name. Raises BackendError."""
        found = {}
        for item in items(self._client.read("slurmdb/qos/"), "qos"):
            name = item.get("name")
            if not isinstance(name, str) or not name:
                raise ParseError("GET slurmdb/qos/", str(item)[:80], "a QoS has no name")
            found[fold(name)] = str(item.get("description") or "")
        if not found:
            raise ParseError("GET slurmdb/qos/", "", "every cluster has the QoS normal")
        return found

    def _qos(self) -> Snapshot:
        found = self.qos()
        made, foreign = marked_qos(found, self.cluster)
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
        return users_of_qos(self._client.read("slurmdb/associations/"))
