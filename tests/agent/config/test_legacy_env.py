# SPDX-License-Identifier: MIT
"""The oldest service's configuration: variables and a TRES file, no YAML of its own."""

from __future__ import annotations

import pytest
import yaml

from agent.config.load import load
from agent.config.model import Mode
from agent.config.secret import Secret
from agent.run.service import configuration

from .samples import CPU, UUID, Site, errors, only_offering, warnings

PULL = (Mode.ORDER_PROCESS,)
PUSH = (Mode.REPORT, Mode.MEMBERSHIP_SYNC)


@pytest.fixture
def environ(site: Site) -> dict[str, str]:
    tres_file = site.write("tres.yaml", yaml.safe_dump({"cpu": CPU}))
    return {
        "WALDUR_API_URL": "https://waldur.example.com/api",
        "WALDUR_API_TOKEN": "t0ken",
        "WALDUR_OFFERING_UUID": UUID,
        "WALDUR_SYNC_DIRECTION": "pull",
        "SLURM_TRES_CONFIG_PATH": str(tres_file),
    }


def test_defaults(environ: dict[str, str]) -> None:
    loaded = load(None, environ, strict=True)
    assert loaded.problems == ()
    offering = only_offering(loaded)
    assert loaded.settings is not None and loaded.settings.source == "the environment"
    assert (offering.name, offering.uuid, offering.queue) == ("Single offering", UUID, "default")
    assert offering.access.url == "https://waldur.example.com/api/"
    assert offering.access.token == Secret("t0ken")
    assert offering.names.max_length == 34
    assert {
        offering.names.customer_prefix,
        offering.names.project_prefix,
        offering.names.allocation_prefix,
    } == {"hpc_"}
    assert offering.backend_settings["default_account"] == "waldur"
    assert offering.backend_settings["slurm_bin_path"] == ""
    assert offering.command_prefix == ("docker", "exec", "slurmctld")
    assert not offering.homes.create
    assert offering.components["cpu"].unit_factor == 60000


@pytest.mark.parametrize(
    ("variables", "modes"),
    [
        ({"WALDUR_SYNC_DIRECTION": "pull"}, PULL),
        ({"WALDUR_SYNC_DIRECTION": "push"}, PUSH),
        ({"WALDUR_SYNC_DIRECTION": "", "WALDUR_SITE_AGENT_MODE": "report"}, (Mode.REPORT,)),
        ({"WALDUR_SYNC_DIRECTION": "push", "WALDUR_SITE_AGENT_MODE": "order_process"}, PUSH),
    ],
)
def test_direction(environ: dict[str, str], variables: dict[str, str], modes: tuple[Mode, ...]) -> None:
    offering = only_offering(load(None, environ | variables))
    assert offering.backends == dict.fromkeys(modes, "slurm")


CHANGES = [
    ({"WALDUR_OFFERING_NAME": "Mine"}, lambda o: o.name, "Mine"),
    (
        {"WALDUR_BACKEND_TYPE": "moab"},
        lambda o: (o.backend_type, o.backends[Mode.ORDER_PROCESS]),
        ("moab", "moab"),
    ),
    ({"SLURM_DEPLOYMENT_TYPE": "native"}, lambda o: o.command_prefix, ()),
    ({"SLURM_CONTAINER_NAME": "head"}, lambda o: o.command_prefix, ("docker", "exec", "head")),
    ({"SLURM_CUSTOMER_PREFIX": "c_"}, lambda o: o.names.customer_prefix, "c_"),
    ({"SLURM_PROJECT_PREFIX": "p_"}, lambda o: o.names.project_prefix, "p_"),
    ({"SLURM_ALLOCATION_PREFIX": "a_"}, lambda o: o.names.allocation_prefix, "a_"),
    ({"SLURM_ALLOCATION_NAME_MAX_LEN": "20"}, lambda o: o.names.max_length, 20),
    ({"SLURM_DEFAULT_ACCOUNT": "root"}, lambda o: o.backend_settings["default_account"], "root"),
    ({"ENABLE_USER_HOMEDIR_ACCOUNT_CREATION": "Yes"}, lambda o: o.homes.create, True),
    ({"ENABLE_USER_HOMEDIR_ACCOUNT_CREATION": "true"}, lambda o: o.homes.create, True),
    ({"ENABLE_USER_HOMEDIR_ACCOUNT_CREATION": "no"}, lambda o: o.homes.create, False),
    ({"REQUESTS_VERIFY_SSL": "false"}, lambda o: o.access.verify_ssl, False),
]


@pytest.mark.parametrize(
    ("variables", "read", "meant"), CHANGES, ids=lambda value: "read" if callable(value) else str(value)[:50]
)
def test_variable(environ: dict[str, str], variables: dict[str, str], read: object, meant: object) -> None:
    assert callable(read)
    assert read(only_offering(load(None, environ | variables))) == meant


REFUSED = [
    ({"WALDUR_SYNC_DIRECTION": "both"}, "WALDUR_SYNC_DIRECTION", "use one of pull, push"),
    ({"WALDUR_SYNC_DIRECTION": ""}, "WALDUR_SYNC_DIRECTION", "it is not set"),
    (
        {"WALDUR_SYNC_DIRECTION": "", "WALDUR_SITE_AGENT_MODE": "event_process"},
        "WALDUR_SITE_AGENT_MODE",
        "use one of order_process, membership_sync, report",
    ),
    ({"SLURM_DEPLOYMENT_TYPE": "podman"}, "SLURM_DEPLOYMENT_TYPE", "use one of docker, native"),
    ({"SLURM_TRES_CONFIG_PATH": "/no/such/file"}, "SLURM_TRES_CONFIG_PATH", "/no/such/file does not exist"),
    ({"WALDUR_API_URL": "waldur"}, "WALDUR_API_URL", "must start with http:// or https://"),
]


@pytest.mark.parametrize(("variables", "place", "sentence"), REFUSED)
def test_refused(environ: dict[str, str], variables: dict[str, str], place: str, sentence: str) -> None:
    loaded = load(None, environ | variables)
    assert loaded.settings is None
    assert sentence in errors(loaded)[place]


STOPPED = [
    ({"SLURM_ALLOCATION_NAME_MAX_LEN": "long"}, "SLURM_ALLOCATION_NAME_MAX_LEN", "use a whole number"),
    ({"WALDUR_OFFERING_UUID": "mine"}, "WALDUR_OFFERING_UUID", "a uuid of 32 hex digits"),
]


@pytest.mark.parametrize(("variables", "place", "sentence"), STOPPED)
def test_stopped(environ: dict[str, str], variables: dict[str, str], place: str, sentence: str) -> None:
    loaded = load(None, environ | variables)
    assert Mode.ORDER_PROCESS in only_offering(loaded).stopped
    assert sentence in warnings(loaded)[place]
    assert sentence in errors(load(None, environ | variables, strict=True))[place]


@pytest.mark.parametrize("direction", ["", "both"])
def test_without_a_direction_no_advice_for_yaml_is_given(environ: dict[str, str], direction: str) -> None:
    loaded = load(None, environ | {"WALDUR_SYNC_DIRECTION": direction})
    assert [problem.path for problem in loaded.problems] == ["WALDUR_SYNC_DIRECTION"]


def test_what_the_backend_refuses_is_reported_under_its_variable(environ: dict[str, str]) -> None:
    loaded = configuration.checked(None, environ | {"SLURM_DEFAULT_ACCOUNT": "a,b"}, strict=True)
    assert "'a,b' is not a valid SLURM account name" in errors(loaded)["SLURM_DEFAULT_ACCOUNT"]


def test_error_in_the_tres_file_is_reported_under_its_variable(site: Site, environ: dict[str, str]) -> None:
    site.write("tres.yaml", yaml.safe_dump({"cpu": {**CPU, "accounting_type": "limits"}}))
    assert "SLURM_TRES_CONFIG_PATH.cpu.accounting_type" in errors(load(None, environ))


def test_username_source_is_known(environ: dict[str, str]) -> None:
    loaded = load(None, environ | {"WALDUR_SLURM_USERNAME_SOURCE": "freeipa"}, strict=True)
    assert loaded.settings is not None
    assert "no effect" in warnings(loaded)["WALDUR_SLURM_USERNAME_SOURCE"]


def test_old_file_of_offerings_is_completed_by_the_variables(site: Site, environ: dict[str, str]) -> None:
    bare = {
        "name": "Old",
        "waldur_api_url": environ.pop("WALDUR_API_URL"),
        "waldur_api_token": environ.pop("WALDUR_API_TOKEN"),
        "waldur_offering_uuid": environ.pop("WALDUR_OFFERING_UUID"),
    }
    file = site.write("offerings.yaml", yaml.safe_dump({"offerings": [bare]}))
    offering = only_offering(load(None, {**environ, "WALDUR_CONFIG_FILE_PATH": str(file)}))
    assert (offering.name, offering.backend_type, tuple(offering.backends)) == ("Old", "slurm", PULL)
    assert list(offering.components) == ["cpu"]


def test_other_files_are_not_completed(site: Site, environ: dict[str, str]) -> None:
    file = site.write("offerings.yaml", yaml.safe_dump({"offerings": [{"name": "New"}]}))
    assert "offerings[0].backend_type" in errors(load(file, environ))
