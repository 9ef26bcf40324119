# SPDX-License-Identifier: MIT
"""The compose file and the image: valid by the Compose specification, commands that exist, sources that are there,
secrets that stay out. The schema next to this file is that of the specification (compose-spec.LICENSE).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from click import Command, Context, Group, NoSuchOption
from jsonschema import Draft7Validator

from agent.cli.main import cli
from rig.parts import require
from rig.processes import REPOSITORY, free_ports, program, start, stop, wait_until
from simulator.server.waldur import SimulatedWaldur
from simulator.world.seed import Scenario
from tasks.limits import TASK_TIME_LIMIT_S

DOCUMENT: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = DOCUMENT["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "redis"}
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text().replace("\\\n", " ")
STEPS = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:[?-])?[^}]*\}")


def texts(value: object) -> Iterator[str]:
    """Every text of a document; its anchors are resolved."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


def test_the_file_is_valid_by_the_specification() -> None:
    schema = json.loads(Path(__file__).with_name("compose-spec.json").read_text())
    validator = Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(DOCUMENT)] == []
    # It knows the keys of a service: a slip does not pass.
    wrong = {**DOCUMENT, "services": {"redis": {**SERVICES["redis"], "read_onyl": True}}}
    assert list(validator.iter_errors(wrong))


def test_every_variable_is_in_the_example_and_has_a_default_or_a_refusal() -> None:
    example = (REPOSITORY / "examples" / "compose.env").read_text()
    found = [match for text in texts(DOCUMENT) for match in VARIABLE.finditer(text)]
    names = {match[1] for match in found}
    assert names == set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE))
    assert names == {match[1] for match in found if match[2]}


def test_volumes_services_and_targets_are_declared() -> None:
    stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE)
    for name, service in SERVICES.items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source.startswith(("./", "/")) or source in DOCUMENT["volumes"], name
        assert set(service.get("depends_on", {})) <= set(SERVICES)
        for other in service.get("depends_on", {}):
            assert "healthcheck" in SERVICES[other], f"{name} waits for the health of {other}"
    targets = {service["image"]: service["build"]["target"] for service in OURS.values()}
    assert set(targets.values()) <= set(stages) and len(set(targets.values())) == len(targets)
    assert stages[-1] == targets["waldur-site-cluster"]


@pytest.mark.parametrize("name", OURS)
def test_commands_and_probes_are_such_that_the_image_has(name: str) -> None:
    probe = OURS[name]["healthcheck"]["test"]
    assert probe[0] == "CMD"
    for words in (OURS[name]["command"], probe[1:]):
        if words[:2] == ["python", "-c"]:
            compile(words[2], name, "exec")
        else:
            # Imported here: with all its plugins, its import takes 0.3 s of each process that collects the tests.
            from celery.bin.celery import celery

            parse({"celery": celery, "waldur-site-cluster": cli}[words[0]], words[1:])


def test_a_command_that_does_not_exist_is_found_out() -> None:
    with pytest.raises(NoSuchOption):
        parse(cli, ["healthz", "--no-such-option"])
    with pytest.raises(AssertionError):
        parse(cli, ["no-such-command"])


def parse(command: Command, words: list[str]) -> None:
    """Let click read the words, down to the sub-command; nothing is run."""
    context = Context(command, **command.context_settings)
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if isinstance(command, Group) and (rest or not command.invoke_without_command):
        inner = command.get_command(context, rest[0])
        assert inner is not None, rest
        parse(inner, rest[1:])


@pytest.mark.parametrize("name", SERVICES)
def test_no_container_writes_to_its_root_has_a_capability_or_shows_a_port(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True and service["restart"] == "unless-stopped" and service["healthcheck"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert "privileged" not in service
    assert service.get("user", "10001") in ("10001", "redis")
    if "worker" in name:
        minutes = int(service["stop_grace_period"].removesuffix("m"))
        assert minutes * 60 > TASK_TIME_LIMIT_S + 30


def test_the_image_is_made_of_pinned_packages_and_runs_as_no_user_of_the_host() -> None:
    for step in STEPS:
        if re.search(r"\bpip (download|install|wheel|--python)", step):
            assert "--require-hashes --only-binary :all:" in step or "--no-index" in step, step
    finals = DOCKERFILE[DOCKERFILE.index("AS base") :]
    assert "USER 10001:10001" in finals and "USER root" not in finals
    assert "pip" not in finals


def test_copied_sources_are_there_whole_and_nothing_else_gets_near_the_image() -> None:
    rules = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    copied = [
        word
        for step in STEPS
        if step.startswith("COPY ") and "--from" not in step
        for word in step.split()[1:-1]
    ]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert set(copied) == allowed
    for source in copied:
        assert (REPOSITORY / source).exists(), source
    # What setuptools packs: every top-level package and module is among them.
    project = (REPOSITORY / "pyproject.toml").read_text()
    (packages,) = re.findall(r"^include = \[(.*)\]$", project, re.MULTILINE)
    (modules,) = re.findall(r"^py-modules = \[(.*)\]$", project, re.MULTILINE)
    needed = {name.strip(' "*') for name in packages.split(",")}
    needed |= {f"{name.strip(chr(32) + chr(34))}.py" for name in modules.split(",")}
    assert needed <= allowed
    for secret in (".env", "waldur-site-agent-config.yaml", "site.env", ".git"):
        assert not any(fnmatch(secret, rule) for rule in allowed)


def test_the_demo_knows_the_simulated_waldur() -> None:
    """The same values make the same uuids and tokens, here and in the container."""
    words = SERVICES["demo-waldur"]["command"]
    assert words[1:] == ["simulate", "--port", "8899"]
    (offering,) = yaml.safe_load((REPOSITORY / "examples" / "compose-demo.yaml").read_text())["offerings"]

    defaults = {option.name: option.default for option in cli.get_command(Context(cli), "simulate").params}
    waldur = SimulatedWaldur(
        defaults["age"],
        scenario=Scenario(
            customers=defaults["customers"],
            projects_per_customer=defaults["projects"],
            members_per_project=defaults["members"],
        ),
    )
    assert offering["waldur_api_token"] == waldur.token()
    assert offering["waldur_offering_uuid"] == waldur.seed.offering_uuid
    assert offering["waldur_api_url"] == "http://127.0.0.1:8899/api/"


@pytest.mark.real_part
def test_redis_starts_by_its_command_keeps_its_password_to_itself_and_loses_nothing(tmp_path: Path) -> None:
    require("redis-server")
    (port,) = free_ports(1)
    shell, option, script = SERVICES["redis"]["command"]
    script = script.replace("$$", "$").replace("/run/redis", str(tmp_path)).replace("/data", str(tmp_path))
    env = {
        "PATH": os.path.dirname(program("redis-server|valkey-server")) + ":/usr/bin:/bin",
        "REDIS_PASSWORD": "s3cret",
    }
    server = start([shell, option, f"{script.rstrip()} --port {port}"], log=tmp_path / "redis.log", env=env)
    try:
        ask = [program("redis-cli"), "-p", str(port)]

        def answer(*words: str, **login: str) -> str:
            given = {**os.environ, **login}
            return subprocess.run(
                [*ask, *words], env=given, capture_output=True, text=True, check=False
            ).stdout

        wait_until("redis", lambda: "PONG" in answer("ping", REDISCLI_AUTH="s3cret"))
        assert "NOAUTH" in answer("ping")
        for setting, value in (("appendonly", "yes"), ("maxmemory-policy", "noeviction")):
            assert answer("config", "get", setting, REDISCLI_AUTH="s3cret").split() == [setting, value]
        assert b"s3cret" not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    finally:
        stop(server)
