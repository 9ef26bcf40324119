# SPDX-License-Identifier: MIT
"""How the agent shows itself in Waldur: its identity for an offering, what it runs there, and that it lives.

Servers before 7.8.5 know no agents: callers see WaldurLacks. The configuration's content is not sent: it has secrets.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agent import __version__
from agent.core.errors import WaldurAnswerError, WaldurError, WaldurLacks
from agent.waldur import records
from agent.waldur.client import WaldurClient

log = logging.getLogger(__name__)

FEATURE = "marketplace-site-agent-identities"
IDENTITIES = f"{FEATURE}/"
SERVICES = "marketplace-site-agent-services/"
BACKEND_TYPE_LENGTH = 100
NO_SUCH_OBJECT = 404
# Their versions are reported to Waldur.
PACKAGES = ("celery", "kombu", "redis", "paho-mqtt", "stomp.py", "requests")


@dataclass(frozen=True, slots=True)
class Program:
    """What runs here: our version, the packages that matter by version, and since when."""

    version: str
    packages: Mapping[str, str]
    config_path: str
    started: datetime

    @classmethod
    def here(cls, config_path: str) -> Program:
        """Return what this process runs; it starts now."""
        packages = {}
        for name in PACKAGES:
            try:
                packages[name] = version(name)
            except PackageNotFoundError:
                continue
        return cls(__version__, packages, config_path, datetime.now(UTC))


class Presence:
    """The agent at one offering in Waldur. The identity and a service are made or found once, and known from then on;
    their uuids are empty before that, and where the server knows no agents.
    """

    def __init__(self, client: WaldurClient, program: Program, identity: str = "", service: str = "") -> None:
        self.identity = identity
        self.service = service
        self._client = client
        self._program = program

    def identify(self) -> str:
        """Register the identity, where it is not known yet, and return its uuid. Raises WaldurError."""
        if not self.identity and self._client.if_supported(FEATURE):
            try:
                self.identity = register(self._client, self._program)
            except WaldurLacks as error:
                self._client.note_missing(FEATURE, error)
        return self.identity

    def activate(self, service: str, processors: Mapping[str, str]) -> None:
        """Make a service active, with these processors (backend by name). Raises WaldurError."""
        if self.identify():
            self.service = register_service(self._client, self.identity, service)
            self.renew(processors)

    def renew(self, processors: Mapping[str, str]) -> None:
        """Report that the processors of a known service run. Raises WaldurError."""
        for name, backend in processors.items():
            register_processor(
                self._client, self.service, name, backend=backend, version=self._program.version
            )

    def is_gone(self, error: WaldurError) -> bool:
        """Return whether the identity was deleted in Waldur, as it seems; then it is registered once more."""
        if error.status != NO_SUCH_OBJECT or isinstance(error, WaldurLacks) or not self.identity:
            return False
        log.warning("offering %s: the agent's identity is made again: %s", self._client.offering_uuid, error)
        self.identity = self.service = ""
        return True


def register(client: WaldurClient, program: Program, *, update: bool = True) -> str:
    """Make the offering's identity, or bring it up to date unless `update` is false; return its uuid. Raises
    WaldurError.
    """
    name = f"agent-{client.offering_uuid}"
    body = {
        "offering": client.offering_uuid,
        "name": name,
        "version": program.version,
        "dependencies": [{"package": p, "version": v} for p, v in sorted(program.packages.items())],
        "config_file_path": program.config_path,
        "config_file_content": "",
        "last_restarted": program.started.astimezone(UTC).isoformat(),
    }
    query = [("offering_uuid", client.offering_uuid), ("name", name)]
    known = next((item for item in client.pages(IDENTITIES, query) if item.get("name") == name), None)
    if known is None:
        return _uuid(client.post(IDENTITIES, body), "an identity")
    uuid = records.uuid(known, "an identity")
    if update:
        client.change("PUT", f"{IDENTITIES}{uuid}/", body)
    return uuid


def register_service(client: WaldurClient, identity: str, name: str) -> str:
    """Make a service of the identity, or activate it again, and return its uuid."""
    body = {"name": name, "mode": name}
    return _uuid(client.post(f"{IDENTITIES}{identity}/register_service/", body, repeatable=True), "a service")


def register_processor(client: WaldurClient, service: str, name: str, *, backend: str, version: str) -> None:
    """Also the heartbeat: ten minutes without one make the service idle."""
    body = {"name": name, "backend_type": backend[:BACKEND_TYPE_LENGTH], "backend_version": version}
    client.post(f"{SERVICES}{service}/register_processor/", body, repeatable=True)


def _uuid(answer: Any, what: str) -> str:
    if not isinstance(answer, Mapping):
        raise WaldurAnswerError(f"Waldur sent no {what}", method="POST", path=IDENTITIES)
    return records.uuid(answer, what)
