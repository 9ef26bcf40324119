# SPDX-License-Identifier: MIT
"""What goes to Sentry, caught by a stand-in: errors with their place, and neither secrets nor local variables."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent import __version__
from agent.config.load import load
from agent.observability.sentry import redacted, secrets_of
from agent.run.service import configuration
from rig.warm_python import python
from tests.agent.config.samples import OFFERING, REPOSITORY, root
from tests.agent.waldur.stand_in import StandIn, says

HUSH = "hush-hush-0123456789"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with StandIn(lambda _: says({"id": "1"})) as stand_in:
        yield stand_in


def dsn_of(server: StandIn) -> str:
    return f"http://public@127.0.0.1:{server.port}/1"


def configured(folder: Path, **keys: Any) -> Path:
    file = folder / "site.yaml"
    file.write_text(yaml.safe_dump(root(offerings=[{**OFFERING, "waldur_api_token": HUSH}], **keys)))
    return file


def speak(file: Path, what: str, **env: str) -> str:
    """What the speaker says on stdout."""
    return subprocess.run(
        [python(), "-m", "tests.agent.observability.speaker", str(file), what],
        cwd=REPOSITORY,
        env={**os.environ, "HUSH": HUSH, **env},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    ).stdout


def sent(server: StandIn) -> list[str]:
    """The envelopes as they came, unpacked."""
    bodies = (asked.body for asked in server.asked)
    return [(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body).decode() for body in bodies]


def events(server: StandIn) -> list[dict[str, Any]]:
    items = (json.loads(line) for envelope in sent(server) for line in envelope.splitlines())
    return [item for item in items if "event_id" in item and "platform" in item]


def test_errors_come_with_their_place_and_without_secrets(server: StandIn, tmp_path: Path) -> None:
    """An ERROR line, and an exception; INFO and WARNING are crumbs on the way to them."""
    speak(configured(tmp_path, sentry_dsn=dsn_of(server)), "trouble", SENTRY_ENVIRONMENT="staging")
    logged, crashed = events(server)
    assert (logged["level"], logged["logger"]) == ("error", "speaker")
    assert logged["environment"] == "staging"
    assert logged["release"] == f"waldur-site-cluster@{__version__}"
    assert logged["logentry"]["message"] == "order %s is stuck: %s"
    assert logged["extra"]["secret_key"] == "[REDACTED]"
    assert [crumb["message"] for crumb in logged["breadcrumbs"]["values"]] == [
        "a crumb with token=[REDACTED] in it",
        "https://user:[REDACTED]@proxy:3128/?api_key=[REDACTED]&a=1",
    ]
    (exception,) = crashed["exception"]["values"]
    frames = exception["stacktrace"]["frames"]
    assert exception["type"] == "ValueError"
    assert exception["value"] == "broker redis://:[REDACTED]@127.0.0.1/0 is away"
    assert frames[-1]["function"] == "crash"
    assert all("vars" not in frame for frame in frames)
    assert HUSH not in "".join(sent(server))
    assert "user" not in logged.keys() | crashed.keys()


def test_what_a_task_sends_is_tagged_with_its_offering_and_task(server: StandIn, tmp_path: Path) -> None:
    speak(configured(tmp_path, sentry_dsn=dsn_of(server)), "task")
    logged, crashed = events(server)
    about = {"offering": "o1", "resource": "r1", "task": "membership_sync.part"}
    assert {**about, "mode": "membership_sync", "task_id": "t1"}.items() <= logged["tags"].items()
    assert crashed["exception"]["values"][0]["value"] == "unforeseen 20"
    assert about.items() <= crashed["tags"].items()
    assert HUSH not in "".join(sent(server))
    assert all("vars" not in f for e in crashed["exception"]["values"] for f in e["stacktrace"]["frames"])
    assert check_ins(server) == []


def test_monitors_are_notified_where_the_site_wants_them(server: StandIn, tmp_path: Path) -> None:
    speak(configured(tmp_path, sentry_dsn=dsn_of(server), sentry_monitors=True), "task")
    beat, report = check_ins(server)
    assert (beat["monitor_slug"], beat["status"]) == ("waldur-site-beat", "ok")
    assert beat["monitor_config"]["schedule"] == {"type": "interval", "value": 5, "unit": "minute"}
    assert (report["monitor_slug"], report["status"], report["duration"]) == ("report-o1", "error", 2.0)


def check_ins(server: StandIn) -> list[dict[str, Any]]:
    items = (json.loads(line) for envelope in sent(server) for line in envelope.splitlines())
    return [item for item in items if "check_in_id" in item]


@pytest.mark.parametrize("in_yaml", [True, False])
def test_the_variables_win_over_the_file(tmp_path: Path, in_yaml: bool) -> None:
    file = configured(tmp_path, **({"sentry_dsn": "http://public@yaml/1"} if in_yaml else {}))
    environ = {"SENTRY_DSN": "http://public@variable/2", "SENTRY_ENVIRONMENT": "staging"}
    settings, _ = configuration.usable(file, environ)
    assert settings.sentry_dsn is not None
    assert settings.sentry_dsn.reveal() == environ["SENTRY_DSN"]
    assert settings.sentry_environment == "staging"


def test_without_a_dsn_the_library_is_not_even_loaded(server: StandIn, tmp_path: Path) -> None:
    assert speak(configured(tmp_path), "trouble") == "False\n"
    assert server.asked == []


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("?token=abc&x=1", "?token=[REDACTED]&x=1"),
        ("?secretKey=abc secret-key=def", "?secretKey=[REDACTED] secret-key=[REDACTED]"),
        ("API_KEY=abc apiKey='def'", "API_KEY=[REDACTED] apiKey='def'"),
        ("client_secret=abc&password=d", "client_secret=[REDACTED]&password=[REDACTED]"),
        ("redis://:pw@h/0 amqp://u:pw@h//", "redis://:[REDACTED]@h/0 amqp://u:[REDACTED]@h//"),
        ("redis://:p/w@1@h/0 away", "redis://:[REDACTED]@h/0 away"),
        ("http://h:80/a@b", "http://h:80/a@b"),
        ({"Authorization": "Token abc"}, {"Authorization": "[REDACTED]"}),
        (
            {"waldur_api_token": "abc", "bind_password": "", "n": 1},
            {"waldur_api_token": "[REDACTED]", "bind_password": "", "n": 1},
        ),
        ([{"a": ("token=x", None, 1.5)}], [{"a": ("token=[REDACTED]", None, 1.5)}]),
        ({"token": {"nested": "token=x"}}, {"token": {"nested": "token=[REDACTED]"}}),
        ("the token of a person", "the token of a person"),
    ],
)
def test_what_is_taken_out(value: object, left: object) -> None:
    assert redacted(value) == left


def test_known_secrets_are_taken_out_wherever_they_stand() -> None:
    pair = namedtuple("pair", "a b")
    assert redacted({"x": pair(f"in {HUSH}!", 2)}, [HUSH]) == {"x": ("in [REDACTED]!", 2)}


def test_the_passwords_of_the_configuration_are_taken_out_however_they_are_spelled(tmp_path: Path) -> None:
    """Of the broker (with `/` in it, and as a client unquotes it), of the proxy, the prefix, and a backend's own."""
    backend = {"command_prefix": "sshpass -p prefix-pw ssh head", "ldap": {"bind_password": "ldap-pw-1"}}
    tree = root(offerings=[{**OFFERING, "backend_settings": backend}])
    tree |= {
        "broker_url": "redis://:12%2Fab%2Fcd@127.0.0.1/0",
        "global_proxy": "socks5://me:proxy-pw@proxy:1",
    }
    file = tmp_path / "site.yaml"
    file.write_text(yaml.safe_dump(tree))
    settings = load(file, {}).settings
    assert settings is not None
    words = ["12%2Fab%2Fcd", "12/ab/cd", "prefix-pw", "ldap-pw-1", "proxy-pw"]
    assert (
        redacted(f"it said {' '.join(words)}.", secrets_of(settings))
        == f"it said {' '.join(['[REDACTED]'] * 5)}."
    )
