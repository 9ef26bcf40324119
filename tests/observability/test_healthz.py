# SPDX-License-Identifier: MIT
"""`healthz`: worker, beat and bridge leave signs of life while they work, and a probe sees which one is silent."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cli.main import run
from agent.host import heartbeat
from agent.host.heartbeat import Heartbeat, Part
from rig.bridge_process import BridgeProcess
from rig.celery_process import CeleryProcess, environment
from rig.operator_process import OperatorProcess
from rig.processes import free_ports, wait_until
from rig.redis_server import RedisServer
from rig.site import configuration, settings_of
from simulator.demo.parts import emulated_cluster
from simulator.server.waldur import SimulatedWaldur

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
    return {part["name"].partition(" ")[0]: part["ok"] for part in document["parts"]}


def test_worker_beat_and_bridge_give_signs_of_life_and_take_them_back_at_their_end(
    waldur: SimulatedWaldur, redis_server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_server.flush()
    commands, emulator = emulated_cluster(tmp_path)
    backend = {"slurm_bin_path": str(commands), "cluster_name": "demo"}
    # Nobody answers there: a bridge that waits for its broker lives.
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
        wait_until("signs of life", lambda: len(heartbeat.signs(settings_of(config).state_dir)) == 3)
        code, document = said(capsys, *words)
        assert (code, names(document)) == (0, {"worker": True, "beat": True, "bridge": True})
        assert said(capsys, "--heartbeat-path", str(own_file))[0] == 0
        pids = {sign.part: sign.pid for sign in heartbeat.signs(settings_of(config).state_dir)}
        assert pids == dict(zip(Part, (part.process.pid for part in parts), strict=True))
        parts[0].process.send_signal(signal.SIGTERM)
        parts[0].process.wait(60)
        assert names(said(capsys, *words)[1]) == {"beat": True, "bridge": True}
        assert said(capsys, "worker", *words)[0] == 1
    finally:
        for part in parts:
            part.stop()
            print(part.output())
    assert heartbeat.signs(settings_of(config).state_dir) == []
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
    told = capsys.readouterr()
    assert told.out == "beat: ok, 0 s ago\n"
    assert "worker celery@here: the last sign of life is 1000 s old" in told.err
    assert str(hanging.path) in told.err
    assert run(["healthz", "beat", "-c", str(config)]) == 0
    assert run(["healthz", "--max-age", "2000", "-c", str(config)]) == 0
    # One part never speaks for another.
    Heartbeat(state_dir, Part.WORKER, "other@here").renew()
    assert run(["healthz", "worker", "-c", str(config)]) == 1
    assert not waldur.request_counts()


def test_signs_of_other_hosts_do_not_count_and_are_cleared_away(tmp_path: Path) -> None:
    gone, young = Heartbeat(tmp_path, Part.BEAT, "a"), Heartbeat(tmp_path, Part.BEAT, "b")
    for each in (gone, young):
        each.renew()
        each.path.write_text(each.path.read_text().replace('"host": "', '"host": "not-'))
    os.utime(gone.path, (time.time() - heartbeat.FORGOTTEN_S - 60,) * 2)
    Heartbeat(tmp_path, Part.BEAT).renew()
    assert [sign.name for sign in heartbeat.signs(tmp_path)] == ["beat"]
    assert (gone.path.exists(), young.path.exists()) == (False, True)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"part": "cook", "name": "a", "host": "b", "pid": 1}', "\0"]
)
def test_a_strange_file_is_nobodys_sign(tmp_path: Path, content: str) -> None:
    (tmp_path / "health").mkdir()
    (tmp_path / "health" / "beat.json").write_text(content)
    assert heartbeat.signs(tmp_path) == []


def test_a_folder_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "health").write_text("a file in its place")
    beating = Heartbeat(tmp_path, Part.BEAT)
    beating.renew(now_s=0.0)
    beating.renew(now_s=1000.0)
    assert caplog.text.count("no sign of life can be left") == 1


def test_a_wrong_configuration_is_not_healthy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["healthz", "-c", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err
