# SPDX-License-Identifier: MIT
"""`examples/docker-compose/`: pull and push of the oldest service, which one `.env` file starts.

There is no Docker here: a program stands in for `docker exec`, and each service's command runs with its environment.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Context
from jsonschema import Draft7Validator

from agent.cli.commands.reference import site_agent
from agent.config.legacy_env import DIRECTIONS
from rig.operator_process import OperatorProcess
from rig.processes import wait_until
from simulator.server.waldur import SimulatedWaldur
from tests import REPOSITORY
from tests.agent.config.samples import variables_of
from tests.deploy.test_compose import SERVICES as CLUSTER
from tests.deploy.test_compose import VARIABLE, texts
from tests.tasks.emulated import EmulatedSlurm, settings, variables

FOLDER = REPOSITORY / "examples" / "docker-compose"
DOCUMENT: dict[str, Any] = yaml.safe_load((FOLDER / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
# What both compose files ask of a container with a worker.
LIKE_A_WORKER = (
    "init",
    "read_only",
    "cap_drop",
    "security_opt",
    "restart",
    "group_add",
    "stop_grace_period",
    "image",
)


def test_it_is_valid_by_the_specification_and_one_env_file_has_every_variable() -> None:
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    assert [error.message for error in Draft7Validator(schema).iter_errors(DOCUMENT)] == []
    names = set(re.findall(r"^#?([A-Z_]+)=", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    assert {match[1] for text in texts(DOCUMENT) for match in VARIABLE.finditer(text)} <= names
    for service in SERVICES.values():
        assert service["env_file"] == [".env"]
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in DOCUMENT["volumes"] or source[0] == "/" or (FOLDER / source).is_file(), source
        assert (FOLDER / service["build"]["context"] / "Dockerfile").is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_is_a_worker_in_a_container_and_does_what_its_direction_says(name: str) -> None:
    service, worker = SERVICES[name], CLUSTER["worker-docker"]
    assert {key: service[key] for key in LIKE_A_WORKER} == {key: worker[key] for key in LIKE_A_WORKER}
    assert service["healthcheck"] == worker["healthcheck"]
    script, *words = service["command"]
    values, rest, _ = site_agent.make_parser(Context(site_agent)).parse_args(words)
    direction = service["environment"]["WALDUR_SYNC_DIRECTION"]
    assert (script, rest) == ("waldur_site_agent", [])
    assert values["modes"] == [mode.value for mode in DIRECTIONS[direction]]


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., OperatorProcess]:
    def make(name: str, given: dict[str, str]) -> OperatorProcess:
        service = SERVICES[name]
        script, *words = service["command"]
        env = {**variables_of(FOLDER / ".env.example"), **service["environment"], **given}
        env["SLURM_TRES_CONFIG_PATH"] = str(REPOSITORY / "examples" / "config-components.yaml")
        command = [str(Path(sys.executable).with_name(script)), *words]
        return OperatorProcess(command, tmp_path / f"{name}.log", env, ready=" ready.", stop_s=120)

    return make


def test_pull_and_push_work_side_by_side_in_one_state(
    start: Callable[..., OperatorProcess], tmp_path: Path
) -> None:
    slurm = EmulatedSlurm(tmp_path)
    docker, asked = tmp_path / "docker", tmp_path / "asked"
    docker.write_text(
        f'#!/bin/sh -eu\necho "$@" >> {asked}\n[ "$1 $2" = "exec slurmctld" ]\nshift 2\nexec "$@"\n'
    )
    docker.chmod(0o755)
    with SimulatedWaldur() as waldur:
        given = {
            **variables(slurm),
            "WALDUR_API_URL": waldur.url,
            "WALDUR_API_TOKEN": waldur.token(),
            "WALDUR_OFFERING_UUID": waldur.seed.offering_uuid,
            "WALDUR_SITE_AGENT_STATE_DIR": str(tmp_path / "state"),
            "PATH": f"{tmp_path}:{settings(slurm)['slurm_bin_path']}:{os.environ['PATH']}",
        }
        order = waldur.place_create_order(waldur.seed.project_uuids[0], "one", limits={"cpu": 10}, slug="one")
        pull, push = (start(name, given) for name in SERVICES)
        try:
            pull.start()
            wait_until("order", lambda: waldur.order(order).state.value == "done", pull.process, pull.log)
            push.start()
            wait_until("report", lambda: "so none is submitted" in push.output(), push.process, push.log)
        finally:
            pull.stop()
            push.stop()
            print(pull.output(), push.output())
    assert "hpc_one" in slurm.ask("sacctmgr", "-nP", "show", "account", "format=account")
    words = asked.read_text().split()
    assert {"sacctmgr", "sacct"} <= set(words)
    # It may name agents of other tests, which run at the same time.
    assert f"process {pull.process.pid} (" not in push.output()
