# SPDX-License-Identifier: MIT
"""How the agent shows itself in Waldur: its identity for an offering, what it runs there, and that it lives.

Servers before 7.8.5 know no agents: callers see WaldurLacks. The configuration's content is not sent: it has secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.core.errors import WaldurAnswerError
from agent.waldur import records
from agent.waldur.client import WaldurClient

IDENTITIES = "marketplace-site-agent-identities/"
SERVICES = "marketplace-site-agent-services/"
BACKEND_TYPE_LENGTH = 100


@dataclass(frozen=True, slots=True)
class Program:
    """What runs here: our version, the packages that matter by version, and since when."""

    version: str
    packages: Mapping[str, str]
    config_path: str
    started: datetime


def register(client: WaldurClient, program: Program) -> str:
    """Make the offering's identity, or bring it up to date, and return its uuid. Raises WaldurError."""
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
