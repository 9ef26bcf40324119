# SPDX-License-Identifier: MIT
"""Reads a cluster through slurmrestd: one request brings accounts, associations, defaults and limits of users."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agent.core.account_names import fold
from agent.core.errors import BackendUnavailable, ParseError
from agent.core.model import Part, Snapshot
from backends.base import Scope
from backends.slurm.commands import marked_qos
from backends.slurm.parse import Qos
from backends.slurm.reader import jobs_of, joined, limited_by_qos, unread
from backends.slurm.rest.client import RestClient, items
from backends.slurm.rest.jobs import RestJobs
from backends.slurm.rest.rows import Rows, below, counts, parse, tres_name, users_of_qos
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
        is_limited_by_qos = (
            keys.own_qos is not None and keys.own_qos.holds_limits and Part.ACCOUNTS in scope.parts
        )
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
        return users_of_qos(self._client.read("slurmdb/associations/"))


def _limits(item: Mapping[str, Any]) -> dict[str, int]:
    """Return the GrpTRESMins of a QoS. Raises ParseError where the version does not show them (v0.0.40)."""
    minutes = below(item, "limits", "max", "tres", "minutes")
    if "total" not in minutes:
        why = "this version shows no GrpTRESMins of a QoS: leave rest_api.api_version out, or apply_limits_to_qos"
        raise ParseError("GET slurmdb/qos/", str(item.get("name")), why)
    return counts(minutes["total"])
