# SPDX-License-Identifier: MIT
"""A backend in memory that makes keys of resources as well. It keeps a digest of each secret, as a real one should."""

from __future__ import annotations

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.config.secret import Secret
from agent.core.errors import BackendError
from agent.core.usage import Counts, UsageQuery
from backends.base import MadeKey
from backends.slurm.schema import SlurmSettings
from backends.testing.memory import MemoryBackend, slurm_settings


@dataclass
class KeyMemory:
    """The keys of a memory cluster."""

    backend: MemoryBackend
    # By account and name.
    digests: dict[tuple[str, str], str] = field(default_factory=dict)
    # By account and name.
    paused: set[tuple[str, str]] = field(default_factory=set)
    # What `usage` returns of each month, by account and name.
    used: dict[str, dict[str, dict[str, Counts]]] = field(default_factory=lambda: defaultdict(dict))

    # Why no key is made, empty where they are.
    refusal: str = ""

    def issue(self, account: str, client_id: str) -> MadeKey:
        self._begin("issue", account)
        if self.refusal:
            raise BackendError(self.refusal)
        secret = secrets.token_urlsafe(24)
        self.digests[account, client_id] = hashlib.sha256(secret.encode()).hexdigest()
        self.paused.discard((account, client_id))
        return MadeKey(client_id, Secret(secret))

    def set_paused(self, account: str, client_id: str, paused: bool) -> None:
        self._begin("pause", account)
        if (account, client_id) not in self.digests:
            raise BackendError(f"account {account} has no key {client_id}")
        (self.paused.add if paused else self.paused.discard)((account, client_id))

    def end(self, account: str, client_id: str) -> None:
        self.backend.must_work("end")
        self.digests.pop((account, client_id), None)
        self.paused.discard((account, client_id))

    def usage(self, query: UsageQuery) -> Mapping[str, Mapping[str, Counts]]:
        self.backend.must_work("usage of keys")
        return self.used[str(query.month)]

    def opens(self, account: str, client_id: str, secret: str) -> bool:
        """Return whether the secret is accepted."""
        digest = hashlib.sha256(secret.encode()).hexdigest()
        return self.digests.get((account, client_id)) == digest and (account, client_id) not in self.paused

    def _begin(self, call: str, account: str) -> None:
        self.backend.must_work(call)
        if account not in self.backend.state.accounts:
            raise BackendError(f"there is no account {account}")


class KeyMemoryBackend(MemoryBackend):
    """The same cluster, with keys."""

    def __init__(self, settings: SlurmSettings | None = None) -> None:
        super().__init__(settings=settings or slurm_settings())
        self.keys = KeyMemory(self)
