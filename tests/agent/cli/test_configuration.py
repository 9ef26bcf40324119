# SPDX-License-Identifier: MIT
"""Configurations that cannot be used: every command says what is wrong and ends with 2; misspelt keys are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.agent.cli.conftest import Command
from tests.agent.cli.operator_site import UNKNOWN, OperatorSite, run_program

COMMANDS = {
    "run": ("run", "order_process", "--once"),
    "plan": ("plan", "order_process"),
    "load-components": ("load-components",),
    "config-check": ("config-check",),
}
BROKEN = {
    "not YAML": (
        "a: [1\n token: hush",
        "this is not YAML: expected ',' or ']', but got ':', line 2, column 7",
    ),
    "a list": ("- a\n- b\n", "a map of keys is needed at the top of the file"),
    "empty": ("", "the file is empty"),
    "no offerings": ("log_level: INFO\n", "`offerings` is missing"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_file_that_is_not_there(command: Command, words: tuple[str, ...]) -> None:
    said = command(*words, "-c", "/no/such/file.yaml")
    assert said.code == 2
    printed = said.out + said.err
    assert "the configuration file /no/such/file.yaml does not exist; name one with -c" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(("content", "sentence"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_file_that_cannot_be_used(
    command: Command, tmp_path: Path, words: tuple[str, ...], content: str, sentence: str
) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(content)
    said = command(*words, "-c", str(file))
    assert said.code == 2
    assert sentence in said.out + said.err
    assert "hush" not in said.out + said.err
    if words[0] != "config-check":
        assert said.out == ""


def test_a_misspelt_key_is_a_warning_for_a_pass(site: OperatorSite, command: Command) -> None:
    file = site.configure(nam="Other", backend={"customer_prefx": "x"})
    said = command("run", "order_process", "--once", "-c", file)
    assert said.code == 0
    warnings = [line["event"] for line in said.log() if line["level"] == "warning"]
    assert warnings == [
        "warning: offerings[0].nam: unknown key 'nam'; did you mean 'name'?",
        "warning: offerings[0].backend_settings.customer_prefx: unknown key 'customer_prefx'; "
        "did you mean 'customer_prefix'?",
    ]


def test_a_misspelt_key_is_an_error_for_config_check(site: OperatorSite, command: Command) -> None:
    said = command("config-check", "-c", site.configure(nam="Other", backend={"customer_prefx": "x"}))
    assert said.code == 2
    assert said.out.splitlines() == [
        "error: offerings[0].nam: unknown key 'nam'; did you mean 'name'?",
        "error: offerings[0].backend_settings.customer_prefx: unknown key 'customer_prefx'; "
        "did you mean 'customer_prefix'?",
        "the configuration cannot be used",
    ]


@pytest.mark.parametrize(
    ("key", "name", "effect"),
    [
        ("reporting_backend", "cscs-dwdi", "until then report is off for this offering"),
        ("membership_sync_backend", "moabb", "until then membership_sync is off for this offering"),
        ("username_management_backend", "freeipa", "no usernames are made for this offering"),
    ],
)
def test_a_mode_that_cannot_be_served_as_it_is_written_is_an_error_for_config_check(
    site: OperatorSite, command: Command, key: str, name: str, effect: str
) -> None:
    """A start goes on with the other modes, and says so."""
    file = site.configure(**{"membership_sync_backend": "slurm", key: name})
    said = command("config-check", "-c", file)
    assert (said.code, "the configuration cannot be used" in said.out, "service:" in said.out) == (
        2,
        True,
        False,
    )
    (error,) = (line for line in said.out.splitlines() if line.startswith("error"))
    assert error.startswith(f"error: offerings[0].{key}: ")
    assert f"backend '{name}'" in error and " is not installed; installed are: " in error
    assert error.endswith(effect)
    said = command("run", "order_process", "--once", "-c", file)
    assert (said.code, any(effect in line["event"] for line in said.log())) == (0, True)


def test_config_schema_has_the_keys_of_the_backends_that_are_here(command: Command) -> None:
    schema = json.loads(command("config-schema").out)
    offering = schema["properties"]["offerings"]["items"]
    assert {"name", "waldur_api_url", "waldur_offering_uuid", "backend_type"} == set(offering["required"])
    settings = offering["properties"]["backend_settings"]["properties"]
    assert {"soft_delete", "slurm_bin_path", "moab_bin_path", "ldap", "usernames"} <= settings.keys()
    assert settings["soft_delete"] == {
        "type": ["boolean", "null"],
        "default": False,
        "description": "a terminated account is kept, with limits of zero",
    }
    assert settings["qos_management"]["properties"]["max_jobs"]["type"] == ["integer", "null"]


def test_config_check_of_a_good_file_hides_its_secrets(site: OperatorSite, command: Command) -> None:
    file = site.configure(oidc_client_secret="hush-oidc", oidc_token_url="http://x/t", oidc_client_id="me")
    said = command("config-check", "-c", file, "--json")
    printed = said.document()
    assert (said.code, printed["ok"]) == (0, True)
    assert printed["settings"]["offerings"][0]["access"]["token"] == "***"
    assert site.waldur.token() not in said.out + said.err
    assert "hush-oidc" not in said.out + said.err
    assert command("config-check", "-c", file).out.endswith("the configuration is good\n")


def test_config_check_offers_to_keep_users_whom_waldur_does_not_know(
    site: OperatorSite, command: Command
) -> None:
    members = {"membership_sync_backend": "slurm"}
    said = command("config-check", "-c", site.configure(**members)).out.splitlines()
    assert said[0].startswith("advice: offerings[0].preserve_unmanaged_backend_users is not written")
    for decided in (True, False):
        file = site.configure(preserve_unmanaged_backend_users=decided, **members)
        assert command("config-check", "-c", file, "--json").document()["advice"] == []


def test_config_check_prints_one_object_also_when_all_is_wrong(command: Command) -> None:
    printed = command("config-check", "-c", "/no/such/file.yaml", "--json").document()
    assert (printed["ok"], printed["settings"]) == (False, None)
    assert printed["problems"][0]["severity"] == "error"


@pytest.mark.parametrize("words", list(COMMANDS.values())[:3], ids=list(COMMANDS)[:3])
def test_an_offering_that_the_file_does_not_have(
    site: OperatorSite, command: Command, words: tuple[str, ...]
) -> None:
    file = site.configure()
    unknown = command(*words, "-c", file, "--offering", UNKNOWN)
    assert (unknown.code, unknown.out) == (2, "")
    assert f"offering {UNKNOWN} is not in {file}" in unknown.err
    wrong = command(*words, "-c", file, "--offering", "seven")
    assert wrong.code == 2
    assert f"offering seven is not in {file}, which has: Test SLURM (" in wrong.err


def test_the_file_is_found_by_its_variable(site: OperatorSite) -> None:
    file = site.configure()
    said = run_program("load-components", env={"WALDUR_SITE_AGENT_CONFIG": file})
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith("Test SLURM")


def test_one_offering_without_a_file(site: OperatorSite, tmp_path: Path) -> None:
    """The variables of the oldest service."""
    components = tmp_path / "components.yaml"
    components.write_text(
        yaml.safe_dump({"cpu": {"measured_unit": "h", "accounting_type": "limit", "label": "CPU"}})
    )
    env = {
        "WALDUR_API_URL": site.waldur.url, "WALDUR_API_TOKEN": site.waldur.token(),
        "WALDUR_OFFERING_UUID": site.waldur.seed.offering_uuid, "WALDUR_SYNC_DIRECTION": "pull",
        "SLURM_TRES_CONFIG_PATH": str(components), "SLURM_DEPLOYMENT_TYPE": "native",
        "WALDUR_SITE_AGENT_STATE_DIR": str(tmp_path / "state"),
    }  # fmt: skip
    said = run_program("load-components", "--json", env=env)
    assert said.code == 0, said.err
    assert said.document()["offerings"][0]["name"] == "Single offering"
