# SPDX-License-Identifier: MIT
"""The reference's other console scripts: names, options, exit codes and what they print."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent.cli import reference
from agent.cli.main import run
from agent.host.heartbeat import Heartbeat, Part
from simulator.server.faults import Fault
from tests.agent.cli.conftest import SCRIPTS, Script
from tests.agent.cli.operator_site import OperatorSite

# Of the reference; facts in docs/migrate.md.
NAMES = {
    "waldur_site_agent",
    "waldur_site_create_homedirs",
    "waldur_site_diagnose_slurm_account",
    "waldur_site_diagnostics",
    "waldur_site_export_plugin_catalogue",
    "waldur_site_healthz",
    "waldur_site_load_components",
    "waldur_site_load_historical_usage",
    "waldur_site_test_order",
    "waldur_sync_offering_users",
    "waldur_sync_resource_limits",
}
CREATE = "create/with-limits.json"


def test_all_of_them_are_installed() -> None:
    assert set(SCRIPTS) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_tells_its_options(script: Script, name: str) -> None:
    said = script(name, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.lower().startswith(f"usage: {name} ")


WITH_FILE = sorted(NAMES - {"waldur_site_export_plugin_catalogue"})


@pytest.mark.parametrize("name", WITH_FILE)
def test_without_its_file_each_ends_with_1_as_before(script: Script, name: str, tmp_path: Path) -> None:
    more: dict[str, tuple[str, ...]] = {
        "waldur_site_diagnose_slurm_account": ("a_one",),
        "waldur_site_test_order": ("--template", CREATE),
        "waldur_site_load_historical_usage": ("-s", "2026-01-01", "-e", "2026-01-31", "-t", "secret"),
    }
    missing = str(tmp_path / "none.yaml")
    said = script(name, *more.get(name, ()), "-c", missing)
    assert said.code == 1
    assert f"the configuration file {missing} does not exist" in said.err


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_wrong_option_ends_each_with_2_as_before(script: Script, name: str) -> None:
    said = script(name, "--no-such-option")
    assert (said.code, said.out) == (2, "")
    assert "no-such-option" in said.err and "Traceback" not in said.err


WITH_MODE = sorted(
    NAMES
    - {
        "waldur_site_diagnose_slurm_account",
        "waldur_site_export_plugin_catalogue",
        "waldur_site_healthz",
        "waldur_site_load_historical_usage",
        "waldur_site_test_order",
    }
)


@pytest.mark.parametrize("name", WITH_MODE)
def test_a_wrong_mode_ends_each_with_2_as_before(script: Script, name: str) -> None:
    said = script(name, "-m", "everything")
    assert said.code == 2
    assert "everything" in said.err


def test_one_component_that_fails_is_printed_and_ends_with_0_as_before(
    site: OperatorSite, script: Script
) -> None:
    file = site.configure(components={"mem": {**MEM, "label": "RAM"}})
    site.waldur.inject(Fault(path="update_offering_component", status=400, body="{}"))
    said = script("waldur_site_load_components", "-c", file)
    assert said.code == 0
    assert "failed" in said.out
    site.waldur.inject(Fault(path="marketplace-provider-offerings", status=403, body="{}"))
    assert script("waldur_site_load_components", "-m", "report", "-c", file).code == 1


MEM = {"measured_unit": "GB-hours", "accounting_type": "limit", "label": "Memory", "unit_factor": 61440}


def test_names_are_said(site: OperatorSite, script: Script) -> None:
    file = site.configure(
        backend={"enable_user_homedir_account_creation": False},
        membership_sync_backend="slurm",
        username_management_backend="template",
    )
    site.place("One")
    assert run(["run", "order_process", "--once", "-c", file]) == 0
    user = next(iter(site.waldur.store.offering_users))
    user.username = ""
    said = script("waldur_sync_offering_users", "-m", "report", "-c", file)
    assert (said.code, user.username == "") == (0, False), said.err
    assert said.out.endswith("Test SLURM: 1 changes, 0 failed\n")


def test_diagnosis_of_offerings_and_of_one_account(site: OperatorSite, script: Script) -> None:
    file = site.configure(membership_sync_backend="slurm")
    said = script("waldur_site_diagnostics", "-m", "report", "-c", file)
    assert (said.code, "ok       Waldur token: " in said.out) == (0, True), said.out
    words = ("a_one", "--config", file, "--offering-uuid", site.waldur.seed.offering_uuid, "--no-color")
    said = script("waldur_site_diagnose_slurm_account", *words, "--json", "-v")
    document = json.loads(said.out)
    assert (said.code, document["account_name"], document["overall_status"]) == (1, "a_one", "missing")
    site.waldur.inject(Fault(path="marketplace-provider-offerings", status=403, body="{}", times=9))
    assert script("waldur_site_diagnostics", "-c", file).code == 1


def test_probes(site: OperatorSite, script: Script, tmp_path: Path) -> None:
    """Liveness is a file that was touched; readiness is one offering for which Waldur answers in time."""
    other = {"name": "Other", "waldur_offering_uuid": "0" * 32, "waldur_api_token": "wrong"}
    file = site.configure_several(other, {})
    sign = tmp_path / "heartbeat"
    words, patient = ("-c", file, "--heartbeat-path", str(sign)), ("--readiness-timeout", "600")
    said = script("waldur_site_healthz", *words, "--liveness-only")
    assert (said.code, said.out) == (1, "")
    assert "no heartbeat" in said.err
    sign.touch()
    assert script("waldur_site_healthz", *words, *patient).code == 0
    assert script("waldur_site_healthz", *words, "--max-age", "-1").code == 1
    # As before, liveness is asked of the file alone, wherever the configuration is.
    no_file = ("-c", str(tmp_path / "none.yaml"), "--heartbeat-path", str(sign))
    assert script("waldur_site_healthz", *no_file, "--liveness-only").code == 0
    assert script("waldur_site_healthz", *no_file).code == 1
    site.waldur.inject(Fault(path="users/me", status=401, body="{}", times=9))
    assert script("waldur_site_healthz", *words, "--liveness-only").out == "healthy\n"
    said = script("waldur_site_healthz", *words)
    assert (said.code, said.err.endswith("Waldur answers for no offering within 5 s\n")) == (1, True)


def test_the_heartbeat_file_of_before(
    site: OperatorSite, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the variable names it the agent touches it, and both commands look at it alone."""
    sign = tmp_path / "waldur-site-agent-heartbeat"
    monkeypatch.setenv("WALDUR_SITE_AGENT_HEARTBEAT_PATH", str(sign))
    none = ("-c", str(tmp_path / "none.yaml"))
    assert (script("waldur_site_healthz", *none, "--liveness-only").code, run(["healthz", *none])) == (1, 1)
    Heartbeat(tmp_path / "state", Part.WORKER, own_file=str(sign)).renew()
    assert time.time() - int(sign.read_text()) < 60
    assert (script("waldur_site_healthz", *none, "--liveness-only").code, run(["healthz", *none])) == (0, 0)
    assert script("waldur_site_healthz", "-c", site.configure(), "--readiness-timeout", "600").code == 0


def test_a_link_in_the_place_of_the_heartbeat_file_is_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Root touches it, and it may lie in /tmp."""
    other = tmp_path / "of-another"
    other.write_text("as it was")
    sign = tmp_path / "heartbeat"
    sign.symlink_to(other)
    Heartbeat(tmp_path / "state", Part.WORKER, own_file=str(sign)).renew()
    assert other.read_text() == "as it was"
    assert str(sign) in caplog.text


def settings_of(plugin: dict[str, Any]) -> dict[str, Any]:
    """The keys that a plugin of the catalogue declares."""
    found: dict[str, Any] = plugin["settings_schema"]["properties"]
    return found


def test_the_catalogue_of_backends(script: Script, tmp_path: Path) -> None:
    said = script("waldur_site_export_plugin_catalogue")
    found = json.loads(said.out)
    assert (said.code, found["catalogue_version"]) == (0, 1)
    assert {"waldur_api_token", "oidc_client_secret"} <= set(found["offering_secret_fields"])
    plugins = {plugin["name"]: plugin for plugin in found["plugins"]}
    assert {"slurm", "moab", "ldap", "base", "template"} <= set(plugins)
    assert "reporting" in plugins["moab"]["roles"]
    assert plugins["ldap"]["roles"] == ["username_management"]
    assert "slurm_bin_path" in plugins["slurm"]["settings_schema"]["properties"]
    assert "unit_factor" in plugins["slurm"]["component_schema"]["properties"]
    paths = plugins["slurm"]["settings_schema"]["properties"]
    assert (paths["slurm_bin_path"]["default"], paths["soft_delete"]["type"]) == (
        "/usr/bin",
        ["boolean", "null"],
    )
    assert paths["execution_mode"]["enum"] == ["cli", "rest", None]
    assert all(each["description"] for plugin in plugins.values() for each in settings_of(plugin).values())
    assert plugins["slurm"]["component_schema"]["required"] == ["measured_unit", "accounting_type", "label"]
    directory = settings_of(plugins["ldap"])["ldap"]
    assert directory["required"] == ["uri", "bind_dn", "bind_password", "base_dn"]
    assert "command_prefix" in plugins["moab"]["secret_settings"]
    file = tmp_path / "catalogue.json"
    assert script("waldur_site_export_plugin_catalogue", "-o", str(file)).out == ""
    assert json.loads(file.read_text()) == found


def test_every_template_makes_a_good_order(site: OperatorSite, script: Script) -> None:
    listed = script("waldur_site_test_order", "--list-templates").out.splitlines()
    assert listed[0] == "Available templates:"
    names = [line.removeprefix("  - ") for line in listed[1:]]
    assert len(names) == 6
    file = site.configure()
    for name in names:
        words = ("-c", file, "--template", name, "--var", "resource_name=One", "--json-output")
        result = json.loads(script("waldur_site_test_order", *words).out)
        assert (result["success"], result["resource_name"]) == (True, "One"), (name, result)
        assert result["errors"] == result["warnings"] == []


@pytest.mark.parametrize("more", [(), ("--generate-only",)], ids=["checked", "made"])
def test_an_order_for_an_offering_by_the_beginning_of_its_uuid(
    site: OperatorSite, script: Script, tmp_path: Path, more: tuple[str, ...]
) -> None:
    uuid, made = site.waldur.seed.offering_uuid, tmp_path / "order.json"
    words = ("-c", site.configure(), "--template", CREATE, "-o", str(made), *more)
    assert script("waldur_site_test_order", *words, "--offering-uuid", uuid[:5]).code == 0
    assert json.loads(made.read_text())["offering_uuid"] == uuid
    said = script("waldur_site_test_order", *words, "--offering-uuid", "nowhere")
    assert (said.code, "offering nowhere is not in" in said.err) == (1, True)


def test_variables_and_the_made_order(script: Script, tmp_path: Path) -> None:
    made = tmp_path / "order.json"
    words = ("--template", CREATE, "--generate-only", "--var", "cpu_limit=7", "--var", "project_slug=p-1")
    said = script("waldur_site_test_order", *words, "-o", str(made))
    order = json.loads(made.read_text())
    assert (said.code, json.loads(said.out)) == (0, order)
    assert (order["limits"]["cpu"], order["project_slug"], order["state"]) == (7, "p-1", "executing")
    said = script("waldur_site_test_order", "--template", CREATE, "--validate-only", "--var", "cpu_limit")
    assert (said.code, said.err) == (1, "error: --var cpu_limit: write NAME=VALUE\n")


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"type": "Create"}, "an order that creates needs offering_uuid"),
        ({"type": "Update", "limits": {"cpu": 1}}, "an order of type Update needs marketplace_resource_uuid"),
        ({"type": "Terminate", "uuid": "nonsense"}, "uuid is 'nonsense', which is no uuid"),
        ({}, "type is None: it is one of Create, Update, Terminate"),
        ([], "an order is a map of fields"),
    ],
    ids=str,
)
def test_a_bad_order(site: OperatorSite, script: Script, tmp_path: Path, order: object, error: str) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(order))
    said = script("waldur_site_test_order", "-c", site.configure(), "--order-file", str(file))
    assert said.code == 1
    assert said.out.startswith("Test Result: FAILED\n")
    assert f"  - {error}\n" in said.out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give either --template or --order-file"),
        (("--template", "none.json", "--validate-only"), "there is no template none.json in"),
        (("--template", CREATE, "--validate-only", "--var", "cpu_limit={{"), "the order is not JSON"),
    ],
)
def test_orders_that_cannot_be_made(script: Script, words: tuple[str, ...], sentence: str) -> None:
    said = script("waldur_site_test_order", *words)
    assert said.code == 1
    assert sentence in said.err


def test_the_scripts_know_the_modes_of_the_service() -> None:
    assert reference.MODES == ("order_process", "report", "membership_sync", "event_process")
