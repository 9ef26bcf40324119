# SPDX-License-Identifier: MIT
"""Values that the reference starts with although they are wrong: they stop one offering's modes, where a guess could
harm, or what is safe is taken. The other offerings go on; `config-check` and `strict` make errors of all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import beat_schedule as table
from agent.config.model import Mode, Offering, Problem, Severity
from agent.core.errors import ConfigError
from agent.core.homes import HomeRules
from agent.run import site as sites
from agent.run.service import configuration

from .samples import OFFERING, Site, changed, errors, only_offering, root, warnings, with_offering

ORDERS = {Mode.ORDER_PROCESS}
ALL = set(Mode)
STOPPED = [
    ("waldur_offering_uuid", "your-offering-uuid-here", ALL, "a uuid of 32 hex digits is needed"),
    ("queue", "head node", ALL, "use letters, digits, dot, dash and underscore"),
    ("backend_settings.soft_delete", "later", ORDERS, "use true or false"),
    ("backend_settings.check_backend_id_uniqueness", "later", ORDERS, "use true or false"),
    ("backend_settings.allocation_prefix", 5, ORDERS, "put it in quotes"),
    ("backend_settings.customer_prefix", 5, ORDERS, "put it in quotes"),
    ("backend_settings.allocation_name_max_len", -3, ORDERS, "use a whole number of 0 or more"),
    ("backend_settings.cluster_name", ["a"], ALL, "put it in quotes"),
    ("backend_settings.command_prefix", "docker exec 'a", ALL, "a quote in it is not closed"),
    ("backend_settings.command_prefix", ["docker", 1], ALL, "write a list of words"),
    ("backend_components.cpu.unit_factor", 0, ALL, "is 0; use a number greater than 0"),
    ("backend_components.cpu.unit_factor", "much", ALL, "use a number greater than 0"),
    ("backend_components.cpu.unit_factor", float("inf"), ALL, "use a number greater than 0"),
    ("backend_components.cpu.unit_factor_reporting", -1, {Mode.REPORT}, "use a number greater than 0"),
    ("backend_components.cpu.limit", -1, ALL, "use a number of 0 or more"),
    ("backend_components.cpu.target_components", 3, ALL, "a map of keys is needed"),
    ("backend_components.cpu.target_components.gpu", 3, ALL, "a map of keys is needed"),
    ("backend_components.cpu.target_components.gpu.factor", 0, ALL, "use a number greater than 0"),
]


@pytest.mark.parametrize(("path", "written", "modes", "sentence"), STOPPED)
def test_it_stops_modes_of_its_own_offering(
    site: Site, path: str, written: object, modes: set[Mode], sentence: str
) -> None:
    other = {**OFFERING, "waldur_offering_uuid": "f" * 32}
    loaded = site.load(root(offerings=[changed(OFFERING, path, written), other]))
    assert loaded.settings is not None
    assert sentence in warnings(loaded)[f"offerings[0].{path}"]
    first, second = loaded.settings.offerings
    assert set(first.stopped) == modes
    assert all(f"offerings[0].{path}" in reason for reason in first.stopped.values())
    assert not second.stopped
    scheduled = {slot.offering_uuid for slot in table.slots(loaded.settings)}
    assert (first.uuid in scheduled) == (Mode.ORDER_PROCESS not in modes)
    assert second.uuid in scheduled


@pytest.mark.parametrize(
    "hook",
    [
        {"timeout_seconds": 5},
        {"timeout_seconds": True},
        {"comand": ["/bin/true"]},
        {"command": None},
        {"command": 5},
        5,
    ],
    ids=str,
)
def test_half_a_hook_accepts_no_order_that_it_should_see(site: Site, hook: object) -> None:
    offering = only_offering(site.load(with_offering("order_hook", hook)))
    assert (set(offering.stopped), offering.order_hook) == (ORDERS, None)
    assert not only_offering(site.load(with_offering("order_hook", {}))).stopped


@pytest.mark.parametrize(("path", "written", "modes", "sentence"), STOPPED)
def test_it_is_an_error_when_strict(
    site: Site, path: str, written: object, modes: set[Mode], sentence: str
) -> None:
    loaded = site.load(with_offering(path, written), strict=True)
    assert loaded.settings is None
    assert sentence in errors(loaded)[f"offerings[0].{path}"]


SAFE = [
    ("backend_settings.homedir_umask", "rwx", lambda o: o.homes == HomeRules()),
    ("backend_settings.default_homedir_umask", "99", lambda o: o.homes == HomeRules()),
    ("backend_settings.default_homedir_umask", "7777", lambda o: o.homes == HomeRules()),
    ("backend_settings.homedir_quota", "x", lambda o: o.homes == HomeRules()),
    ("backend_settings.homedir_base_path", 5, lambda o: o.homes == HomeRules()),
    ("backend_settings.enable_user_homedir_account_creation", "maybe", lambda o: not o.homes.create),
    ("backend_settings.periodic_limits", True, lambda o: not o.periodic_limits_enabled),
    ("backend_settings.periodic_limits.enabled", "often", lambda o: not o.periodic_limits_enabled),
    ("backend_settings.backend_id_max_retries", -5, lambda o: o.names.max_attempts == 50),
    ("backend_settings.target_api_url", 5, lambda o: not o.stopped),
    ("event_transport", "pigeon", lambda o: o.events.ws_path == "/rmqws-stomp"),
    ("stomp_ws_port", 0, lambda o: o.events.ws_port == 443),
    ("stomp_ws_port", 70000, lambda o: o.events.ws_port == 443),
]


@pytest.mark.parametrize(("path", "written", "is_safe"), SAFE)
def test_what_is_safe_is_taken(site: Site, path: str, written: object, is_safe: object) -> None:
    assert callable(is_safe)
    loaded = site.load(with_offering(path, written))
    offering = only_offering(loaded)
    assert is_safe(offering) and not offering.stopped
    assert "; until then " in warnings(loaded)[f"offerings[0].{path}"]
    assert f"offerings[0].{path}" in errors(site.load(with_offering(path, written), strict=True))


def test_a_cluster_name_that_cannot_name_a_queue_stops_its_offering(site: Site) -> None:
    loaded = site.load(with_offering("backend_settings.cluster_name", "my cluster"))
    assert set(only_offering(loaded).stopped) == ALL
    assert "'my cluster', which cannot name a queue" in warnings(loaded)["offerings[0].queue"]


def test_a_component_with_a_wrong_factor_is_never_used_with_another(site: Site) -> None:
    assert not only_offering(site.load(with_offering("backend_components.cpu.unit_factor", 0))).components


OTHER = {**OFFERING, "name": "Two", "waldur_offering_uuid": "f" * 32}
BACKEND_WRONG = [
    ("execution_mode", "ssh", "is 'ssh'; use one of cli, rest"),
    ("qos_paused", ["a"], "qos_paused"),
    ("default_account_policy", "sometimes", "is 'sometimes'; use one of common"),
]


@pytest.mark.parametrize(("key", "written", "sentence"), BACKEND_WRONG)
def test_a_setting_that_only_the_backend_knows_stops_its_modes(
    tmp_path: Path, key: str, written: object, sentence: str
) -> None:
    file = write(tmp_path, changed(OFFERING, f"backend_settings.{key}", written), OTHER)
    settings, problems = configuration.usable(file, {})
    found = [problem for problem in problems if problem.path == f"offerings[0].backend_settings.{key}"]
    assert sentence in f"{found[0].path} {found[0].message}"
    assert found[0].message.endswith("; until then order_process is off for this offering")
    first, second = settings.offerings
    assert [problem.severity for problem in unusable(first)] == [Severity.WARNING]
    assert unusable(second) == []
    with pytest.raises(ConfigError, match=sentence):
        sites.connect(settings, first, Mode.ORDER_PROCESS)
    sites.connect(settings, second, Mode.ORDER_PROCESS)
    assert configuration.checked(file, {}, strict=True).settings is None


def test_a_stopped_mode_is_not_connected(tmp_path: Path) -> None:
    file = write(tmp_path, changed(OFFERING, "backend_settings.customer_prefix", 5))
    settings, _ = configuration.usable(file, {})
    with pytest.raises(ConfigError, match=r"order_process is off for One: .*customer_prefix"):
        sites.connect(settings, settings.offerings[0], Mode.ORDER_PROCESS)
    assert [problem.stopped_modes for problem in unusable(settings.offerings[0])] == [frozenset(ORDERS)]


def test_a_cluster_may_be_called_by_digits(tmp_path: Path) -> None:
    file = write(tmp_path, changed(OFFERING, "backend_settings.cluster_name", 2024))
    settings, problems = configuration.usable(file, {})
    assert not problems
    assert sites.connect(settings, settings.offerings[0], Mode.ORDER_PROCESS).backend.cluster == "2024"


def test_errors_of_all_kinds_come_at_once(tmp_path: Path) -> None:
    wrong = changed(OFFERING, "backend_settings.default_acount", "root")
    wrong.update(waldur_api_url="nowhere", reporting_backend="nosuch", waldur_api_token=5)
    wrong["backend_settings"]["default_account_policy"] = "sometimes"
    problems = configuration.checked(write(tmp_path, wrong), {}, strict=True).problems
    messages = {problem.path: problem.message for problem in problems}
    assert "must start with http://" in messages["offerings[0].waldur_api_url"]
    assert "is ***; text is needed" in messages["offerings[0].waldur_api_token"]
    assert "did you mean 'default_account'?" in messages["offerings[0].backend_settings.default_acount"]
    assert (
        "is 'sometimes'; use one of common"
        in messages["offerings[0].backend_settings.default_account_policy"]
    )
    assert "backend 'nosuch' is not installed" in messages["offerings[0].reporting_backend"]
    assert len(messages) == 5


def unusable(offering: Offering) -> list[Problem]:
    return sites.unusable([offering], Mode.ORDER_PROCESS)


def write(folder: Path, *offerings: dict[str, Any]) -> Path:
    """A file with these offerings, on a head node that has a sacctmgr."""
    sacctmgr = folder / "sacctmgr"
    sacctmgr.touch(mode=0o755)
    for offering in offerings:
        offering["backend_settings"] = {"slurm_bin_path": str(folder), **offering["backend_settings"]}
    file = folder / "site.yaml"
    file.write_text(yaml.safe_dump({"state_dir": str(folder), "offerings": list(offerings)}))
    file.chmod(0o600)
    return file
