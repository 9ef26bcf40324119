# SPDX-License-Identifier: MIT
"""`healthz`: worker, beat and bridge write heartbeats while they work, and a probe sees which one is silent."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli import status
from agent.cli.main import run
from agent.core.checks import CheckState
from agent.host import heartbeat
from agent.host.heartbeat import Heartbeat, Part
from agent.run.diagnosis import faults, figures, picture
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.emulator import emulated_cluster
from rig.operator_process import OperatorProcess
from rig.processes import free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from tests.agent.cli.operator_site import run_program

Said = dict[str, Any]


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur() as server:
        yield server


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Said]:
    capsys.readouterr()
    code = run(["healthz", "--json", *words])
    return code, json.loads(capsys.readouterr().out)


def names(document: Said) -> dict[str, bool]:
    return {
        part["check"].removeprefix("heartbeat of ").partition(" ")[0]: part["state"] == "ok"
        for part in document["parts"]
    }


def test_worker_beat_and_bridge_write_heartbeats_and_remove_them_at_their_end(
    waldur: SimulatedWaldur, redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.flush()
    commands, emulator = emulated_cluster(tmp_path)
    backend = {"slurm_bin_path": str(commands), "cluster_name": "demo"}
    # No broker answers there: a bridge that waits for its broker lives.
    events = {"stomp_enabled": True, "stomp_ws_host": "127.0.0.1", "stomp_ws_port": free_ports(1)[0]}
    config = configuration(waldur, tmp_path, backend=backend, **events)
    own_file = tmp_path / "own"
    env = environment(config, redis_server.url, emulator)
    parts: list[OperatorProcess] = [
        CeleryProcess("worker", tmp_path / "worker.log", env, "-c", "1"),
        CeleryProcess(
            "beat", tmp_path / "beat.log", {**env, "WALDUR_SITE_AGENT_HEARTBEAT_PATH": str(own_file)}
        ),
        BridgeProcess(tmp_path / "bridge.log", env),
    ]
    words = ("-c", str(config))
    try:
        for part in parts:
            part.start(wait=False)
        wait_until("heartbeats", lambda: len(heartbeat.last_heartbeats(settings_of(config).state_dir)) == 3)
        code, document = said(capsys, *words)
        assert (code, names(document)) == (0, {"worker": True, "beat": True, "bridge": True})
        assert said(capsys, "--heartbeat-path", str(own_file))[0] == 0
        pids = {last.part: last.pid for last in heartbeat.last_heartbeats(settings_of(config).state_dir)}
        assert pids == dict(zip(Part, (part.process.pid for part in parts), strict=True))
        parts[0].process.send_signal(signal.SIGTERM)
        parts[0].process.wait()
        assert names(said(capsys, *words)[1]) == {"beat": True, "bridge": True}
        assert said(capsys, "worker", *words)[0] == 1
    finally:
        for part in parts:
            part.stop()
            print(part.output())
    assert heartbeat.last_heartbeats(settings_of(config).state_dir) == []
    assert said(capsys, *words)[0] == 1


def test_a_silent_part_is_named_with_what_to_do(
    waldur: SimulatedWaldur, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(waldur, tmp_path)
    state_dir = settings_of(config).state_dir
    hanging, well = Heartbeat(state_dir, Part.WORKER, "celery@here"), Heartbeat(state_dir, Part.BEAT)
    hanging.renew()
    well.renew()
    os.utime(hanging.path, (time.time() - 1000,) * 2)
    assert run(["healthz", "-c", str(config)]) == 1
    printed = capsys.readouterr()
    assert re.fullmatch(r"heartbeat of beat: ok, \d+ s ago\n", printed.out)
    assert re.search(r"heartbeat of worker celery@here: the last one is 1\d{3} s old", printed.err)
    assert str(hanging.path) in printed.err
    assert run(["healthz", "beat", "-c", str(config)]) == 0
    assert run(["healthz", "--max-age", "2000", "-c", str(config)]) == 0
    # One part never speaks for another.
    Heartbeat(state_dir, Part.WORKER, "other@here").renew()
    assert run(["healthz", "worker", "-c", str(config)]) == 1
    assert not waldur.request_counts()


def test_heartbeats_of_other_hosts_do_not_count_and_are_cleared_away(tmp_path: Path) -> None:
    gone, young = Heartbeat(tmp_path, Part.BEAT, "a"), Heartbeat(tmp_path, Part.BEAT, "b")
    for each in (gone, young):
        each.renew()
        each.path.write_text(each.path.read_text().replace('"host": "', '"host": "not-'))
    os.utime(gone.path, (time.time() - heartbeat.FORGOTTEN_S - 60,) * 2)
    Heartbeat(tmp_path, Part.BEAT).renew()
    assert [last.name for last in heartbeat.last_heartbeats(tmp_path)] == ["beat"]
    assert (gone.path.exists(), young.path.exists()) == (False, True)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"part": "cook", "name": "a", "host": "b", "pid": 1}', "\0"]
)
def test_a_strange_file_is_no_heartbeat(tmp_path: Path, content: str) -> None:
    (tmp_path / "health").mkdir()
    (tmp_path / "health" / "beat.json").write_text(content)
    assert heartbeat.last_heartbeats(tmp_path) == []


def test_a_file_that_cannot_be_read_leaves_the_others_known(
    waldur: SimulatedWaldur, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder in its place stands for a file without rights, or a disk with a fault."""
    config = configuration(waldur, tmp_path)
    settings = settings_of(config)
    for name in ("worker-one@here", "x"):
        (settings.state_dir / "health" / f"{name}.json").mkdir(parents=True)
    Heartbeat(settings.state_dir, Part.BEAT).renew()
    found = picture.of_site(settings, settings.offerings)
    shown = [(each.name, each.state) for each in faults.of_parts(found)]
    unread = ("heartbeat of worker one@here", CheckState.UNKNOWN)
    assert shown == [("heartbeat of beat", CheckState.OK), unread]
    assert [each["age_s"] is None for each in found.as_json()["heartbeats"]] == [False, True]
    samples = figures.of_heartbeats(heartbeat.last_heartbeats(settings.state_dir))
    assert [each.labels for each in samples] == [(Part.BEAT, "beat")]
    assert run(["healthz", "beat", "-c", str(config)]) == 0
    assert run(["healthz", "worker", "-c", str(config)]) == 1, "unknown is not well"
    assert "worker-one@here.json cannot be read: Is a directory" in capsys.readouterr().err


def test_heartbeats_that_cannot_be_looked_at_are_one_unknown_check(
    waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(configuration(waldur, tmp_path))
    Heartbeat(settings.state_dir, Part.BEAT).renew()

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refused)
    found = picture.of_site(settings, settings.offerings)
    (check,) = faults.of_parts(found)
    assert (check.name, check.state) == ("heartbeats", CheckState.UNKNOWN)
    assert "Permission denied" in check.found
    assert [each.offering for each in found.offerings] == list(settings.offerings)
    assert any("on this host: heartbeats: the heartbeats in" in line for line in status.lines(found))


def test_heartbeats_are_seen_beside_a_damaged_state_file(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    config = configuration(waldur, tmp_path)
    state_dir = settings_of(config).state_dir
    Heartbeat(state_dir, Part.WORKER, "one@here").renew()
    (state_dir / "state.sqlite3").write_bytes(b"damaged" * 1000)
    away = {"WALDUR_SITE_AGENT_BROKER_URL": "redis://127.0.0.1:1/0"}
    done = run_program("metrics", "-c", str(config), env=away)
    assert 'waldur_site_source_up{source="state"} 0.0' in done.out
    assert 'waldur_site_source_up{source="health"} 1.0' in done.out
    assert 'waldur_site_part_heartbeat_timestamp_seconds{name="one@here",part="worker"}' in done.out
    checks = {
        each["check"]: each
        for each in run_program("doctor", "--json", "-c", str(config), env=away).document()["checks"]
    }
    assert checks["heartbeat of worker one@here"]["state"] == "ok"
    assert "is damaged" in checks["passes"]["found"]
    assert "does not answer" in checks["broker"]["found"]


def test_a_folder_that_cannot_be_written_stops_no_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "health").write_text("a file in its place")
    beating = Heartbeat(tmp_path, Part.BEAT)
    beating.renew(now_s=0.0)
    beating.renew(now_s=1000.0)
    assert caplog.text.count("no heartbeat can be written") == 1


def test_a_wrong_configuration_is_not_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["healthz", "-c", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err
