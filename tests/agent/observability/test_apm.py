# SPDX-License-Identifier: MIT
"""What goes to Elastic APM, caught by a stand-in: errors, without the secrets of the configuration."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Severity
from agent.observability import apm
from agent.run.service import configuration
from tests.agent.observability.test_sentry import HUSH, configured, speak
from tests.agent.waldur.stand_in import StandIn, says

pytest.importorskip("elasticapm")


def errors(server: StandIn) -> list[dict[str, Any]]:
    bodies = (zlib.decompress(asked.body, 47) for asked in server.asked if "intake" in asked.target)
    lines = (json.loads(line) for body in bodies for line in body.splitlines())
    return [line["error"] for line in lines if "error" in line]


def test_errors_go_to_the_server_without_secrets(tmp_path: Path) -> None:
    with StandIn(lambda _: says({})) as server:
        file = configured(tmp_path, elastic_apm_server_url=server.root)
        patient = {"ELASTIC_APM_SERVER_TIMEOUT": "10m", "ELASTIC_APM_API_REQUEST_TIME": "10m"}
        speak(file, "trouble", ELASTIC_APM_CENTRAL_CONFIG="false", **patient)
        found = errors(server)
    assert any("order abc is stuck: [REDACTED]" in json.dumps(error) for error in found)
    assert HUSH not in json.dumps(found)


def test_nothing_is_sent_unless_it_is_asked_for(tmp_path: Path) -> None:
    with StandIn(lambda _: says({})) as server:
        speak(configured(tmp_path), "trouble")
        assert server.asked == []


def test_a_host_without_the_package_gets_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apm, "find_spec", lambda _: None)
    file = configured(tmp_path, elastic_apm_server_url="https://apm.example.com")
    problems = {p.path: p for p in configuration.checked(file, {}, strict=True).problems}
    assert problems["elastic_apm_server_url"].severity is Severity.ERROR
    assert "pip install 'waldur-site-cluster[apm]'" in problems["elastic_apm_server_url"].message
