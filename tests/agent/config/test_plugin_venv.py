# SPDX-License-Identifier: MIT
"""`plugin_venv`: a backend of the reference serves reports, and for orders and members it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from agent.cli.main import cli
from agent.config.model import Mode
from agent.core.errors import ConfigError
from agent.run.service.configuration import checked
from backends import registry
from rig import plugin_venv

from .samples import OFFERING, Site, only_offering, root

REFUSED = "serves `reporting_backend` only, and neither orders nor members"


@pytest.fixture
def venv(tmp_path: Path) -> str:
    return str(plugin_venv.make(tmp_path))


def tree(**keys: Any) -> dict[str, Any]:
    return root(offerings=[{**OFFERING, "reporting_backend": plugin_venv.NAME, **keys}])


def config_check(site: Site, document: dict[str, Any]) -> Result:
    site.load(document)
    return CliRunner().invoke(cli, ["config-check", "-c", str(site.file)], standalone_mode=False)


def test_slurm_serves_orders_and_the_plugin_reports(site: Site, venv: str) -> None:
    settings = {"customer_prefix": "c_", "dwdi_url": "https://x", "dwdi_token": "t0p-secret"}
    done = config_check(site, tree(plugin_venv=venv, backend_settings=settings))
    assert (done.return_value, "the configuration is good" in done.stdout) == (0, True), done.stdout
    assert "unknown key" not in done.stdout
    assert "t0p-secret" not in done.stdout + done.stderr
    offering = only_offering(site.load(tree(plugin_venv=venv)))
    assert str(offering.plugin_venv) == venv
    found = [registry.configure(offering, mode).plugin for mode in (Mode.ORDER_PROCESS, Mode.REPORT)]
    assert [type(plugin).__name__ for plugin in found] == ["SlurmPlugin", "ReferencePlugin"]


@pytest.mark.parametrize("key", ["order_processing_backend", "membership_sync_backend"])
def test_for_orders_and_members_it_is_refused(site: Site, venv: str, key: str) -> None:
    document = tree(plugin_venv=venv, **{"order_processing_backend": "", key: plugin_venv.NAME})
    done = config_check(site, document)
    assert done.return_value == 2
    assert REFUSED in done.stdout
    offering = only_offering(site.load(document))
    (mode,) = offering.stopped
    assert REFUSED in offering.stopped[mode]
    assert registry.configure(offering, Mode.REPORT).name == plugin_venv.NAME


def test_one_name_is_not_both_ours_and_the_plugins(site: Site, venv: str) -> None:
    done = config_check(site, tree(plugin_venv=venv, reporting_backend="slurm"))
    assert done.return_value == 2
    assert REFUSED in done.stdout


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "not there": ({"plugin_venv": "/nowhere/venv"}, "plugin_venv: /nowhere/venv: No such file or directory. Make"),
    "relative": ({"plugin_venv": "venv"}, "`plugin_venv` is 'venv'; an absolute path is needed"),
    "a number": ({"plugin_venv": 5}, "plugin_venv"),
    "another name": ({"reporting_backend": "harbor"}, "has a backend 'harbor' of waldur-site-agent; it has: tally"),
}  # fmt: skip


@pytest.mark.parametrize("how", WRONG)
def test_an_environment_that_cannot_be_used_stops_reports_alone(site: Site, venv: str, how: str) -> None:
    keys, reason = WRONG[how]
    document = tree(**{"plugin_venv": venv, **keys})
    done = config_check(site, document)
    assert done.return_value == 2
    assert reason in done.stdout
    loaded = checked(site.file, {})
    (stopped,) = {mode for problem in loaded.problems for mode in problem.stopped_modes}
    assert stopped is Mode.REPORT
    offering = only_offering(loaded)
    assert registry.configure(offering, Mode.ORDER_PROCESS).name == "slurm"


def test_an_environment_that_is_not_there_is_named_by_its_error(site: Site) -> None:
    offering = only_offering(site.load(tree(plugin_venv="/nowhere/venv")))
    with pytest.raises(ConfigError, match=r"offerings\[0\].plugin_venv.*/nowhere/venv.*python3 -m venv"):
        registry.configure(offering, Mode.REPORT)


def test_without_a_backend_for_reports_it_has_no_effect(site: Site, venv: str) -> None:
    document = tree(plugin_venv=venv, reporting_backend="")
    assert only_offering(site.load(document)).plugin_venv is None
    assert (
        "the environment of `reporting_backend`, which is not written" in config_check(site, document).stdout
    )
