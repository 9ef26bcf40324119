# SPDX-License-Identifier: MIT
"""Plugins of waldur-site-agent 1.0.7 itself, against a stand-in of the service that each asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import passes
from agent.run.results import Result
from agent.run.site import Site, connect
from rig.parts import REFERENCE_VENV, require
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import ComponentSpec
from tests.agent.run.usage.world import scenario

pytestmark = pytest.mark.real_part
NODES = ComponentSpec(type="node_hours", name="Nodes", measured_unit="h", billing_type="usage")
STORAGE = ComponentSpec(type="storage", name="Storage", measured_unit="GB")
GIB = 1024**3


class Service:
    """Answers as CSCS-DWDI and Harbor do: `node_hours` by account and cluster, `stored` GiB by project."""

    def __init__(self) -> None:
        self.node_hours: dict[tuple[str, str], float] = {}
        self.stored: dict[str, int] = {}
        self.is_away = False
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.answer({"access_token": "x", "expires_in": 3600})

            def do_GET(self) -> None:
                found = urlsplit(self.path)
                asked = parse_qs(found.query)
                if found.path.startswith("/compute/"):
                    accounts, clusters = asked["account"], asked["cluster"]
                    found_of = {
                        account: hours
                        for (account, cluster), hours in service.node_hours.items()
                        if account in accounts and cluster in clusters
                    }
                    self.answer({"compute": [
                        {"account": name, "totalNodeHours": hours, "users": [{"username": "ann", "nodeHours": hours}]}
                        for name, hours in found_of.items()
                    ]})  # fmt: skip
                elif found.path.endswith("/summary"):
                    stored = list(service.stored.values())[int(found.path.split("/")[-2])]
                    self.answer({"quota": {"used": {"storage": stored * GIB}}})
                else:
                    self.answer([{"name": name, "project_id": n} for n, name in enumerate(service.stored)])

            def answer(self, document: Any) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.dumps(document).encode()
                self.send_response(503 if service.is_away else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    require("reference")
    with SimulatedWaldur("8.0", scenario=scenario(components=(NODES, STORAGE))) as made:
        made.site.change("offerings", made.seed.offering_uuid, backend_id="Eiger")
        for number, uuid in enumerate(made.seed.resource_uuids, 1):
            made.site.change("resources", uuid, backend_id=f"a_{number}")
        yield made


def site_of(waldur: SimulatedWaldur, folder: Path, name: str, settings: dict[str, str]) -> Site:
    components = {
        "node_hours": {"measured_unit": "h", "accounting_type": "usage", "label": "Nodes", "unit_factor": 1},
        "storage": {"measured_unit": "GB", "accounting_type": "limit", "label": "Storage", "unit_factor": 1},
    }
    keys = {"order_processing_backend": "", "reporting_backend": name, "plugin_venv": str(REFERENCE_VENV)}
    path = configuration(waldur, folder, components=components, backend=settings, **keys)
    found = settings_of(path)
    return connect(found, found.offerings[0], Mode.REPORT)


def in_waldur(waldur: SimulatedWaldur, component: str) -> list[str]:
    """What Waldur holds of the four resources in this month."""
    this = Month.of(datetime.now(UTC)).first_day
    rows = {
        row.resource_uuid: f"{row.usage:.2f}"
        for row in waldur.store.usages
        if row.component_type == component and row.billing_period == this
    }
    return [rows.get(uuid, "") for uuid in waldur.seed.resource_uuids]


def test_dwdi_counts_the_cluster_of_the_offering(
    waldur: SimulatedWaldur, service: Service, tmp_path: Path
) -> None:
    client = {"cscs_dwdi_client_id": "me", "cscs_dwdi_client_secret": "top-secret"}
    urls = {"cscs_dwdi_api_url": service.url, "cscs_dwdi_oidc_token_url": f"{service.url}/token"}
    site = site_of(waldur, tmp_path, "cscs-dwdi-compute", {**client, **urls})
    service.node_hours = {("a_1", "eiger"): 5.5, ("a_1", "alps"): 100, ("a_2", "eiger"): 2}
    assert passes.report_usage(site).error is None
    # The plugin says zero of an account that the service does not name.
    assert in_waldur(waldur, "node_hours") == ["5.50", "2.00", "0.00", "0.00"]
    assert in_waldur(waldur, "storage")[:2] == ["", ""]
    assert {row.username for row in waldur.store.user_usages} == {"ann"}
    service.node_hours["a_1", "eiger"] = 4
    assert not passes.report_usage(site).held
    assert in_waldur(waldur, "node_hours")[0] == "4.00"
    service.is_away = True
    report = passes.report_usage(site)
    # It logs what the service said, and returns nothing: that is unknown.
    assert any("the plugin names no usage in" in note for note in report.notes)
    assert in_waldur(waldur, "node_hours") == ["4.00", "2.00", "0.00", "0.00"]
    assert "top-secret" not in str(report.as_json())


def test_what_harbor_calls_zero_when_it_is_away_is_held(
    waldur: SimulatedWaldur, service: Service, tmp_path: Path
) -> None:
    login = {"robot_username": "me", "robot_password": "top-secret"}
    site = site_of(waldur, tmp_path, "harbor", {"harbor_url": service.url, **login})
    service.stored = {f"a_{number}": number for number in range(1, 5)}
    assert passes.report_usage(site).error is None
    assert in_waldur(waldur, "storage") == ["1.00", "2.00", "3.00", "4.00"]
    service.is_away = True
    report = passes.report_usage(site)
    assert len(report.held) == 4
    assert {each.result for each in report.resources} == {Result.WAITING}
    assert in_waldur(waldur, "storage") == ["1.00", "2.00", "3.00", "4.00"]


def test_a_plugin_without_its_settings_says_so(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    report = passes.report_usage(site_of(waldur, tmp_path, "harbor", {}))
    assert "failed at open: ValueError: Missing required setting: harbor_url" in str(report.error)
