# SPDX-License-Identifier: MIT
"""Unknown keys, keys of the past, keys given twice; and what `strict` makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.config.findings import unknown_keys, with_strict_errors
from agent.config.keys import key, keys_of
from agent.config.model import Problem, Severity
from agent.config.schema import BackendSettingsKeys, ComputedKeys
from agent.run.service import configuration
from backends.slurm.plugin import SlurmPlugin

from .samples import OFFERING, UUID, Site, changed, errors, only_offering, root, warnings, with_offering
from .test_wrong_values import write

UNKNOWN = [
    ("", "ofering", "unknown key 'ofering'; did you mean 'offerings'?"),
    ("", "xyzzy", "unknown key 'xyzzy'"),
    ("log_shipping", "ship_interval", "unknown key 'ship_interval'; did you mean 'ship_interval_seconds'?"),
    ("offerings[0]", "waldur_token", "unknown key 'waldur_token'; did you mean 'waldur_api_token'?"),
    ("offerings[0]", "STOMP_ENABLED", "unknown key 'STOMP_ENABLED'; did you mean 'stomp_enabled'?"),
    ("offerings[0]", 5, "unknown key '5'"),
    ("offerings[0].backend_components.cpu.target_components.gpu", "faktor", "did you mean 'factor'?"),
]


@pytest.mark.parametrize(("place", "key", "sentence"), UNKNOWN)
@pytest.mark.parametrize("strictness", ["warning", "argument", "key"])
def test_unknown_key(site: Site, place: str, key: str, sentence: str, strictness: str) -> None:
    offering = changed(OFFERING, "backend_components.cpu.target_components.gpu.factor", 2)
    tree = root(offerings=[offering], log_shipping={"enabled": False}, strict=strictness == "key")
    parts = {
        "": tree,
        "log_shipping": tree["log_shipping"],
        "offerings[0]": offering,
        "offerings[0].backend_components.cpu": offering["backend_components"]["cpu"],
        "offerings[0].backend_components.cpu.target_components.gpu": offering["backend_components"]["cpu"][
            "target_components"
        ]["gpu"],
    }
    parts[place][key] = 1
    loaded = site.load(tree, strict=True if strictness == "argument" else None)
    path = f"{place}.{key}".lstrip(".")
    found = warnings(loaded) if strictness == "warning" else errors(loaded)
    assert sentence in found[path]
    assert (loaded.settings is not None) == (strictness == "warning")


def test_keys_of_components_are_judged_with_those_of_the_plugins(tmp_path: Path) -> None:
    tree = changed(OFFERING, "backend_components.cpu.unit_facter", 1)
    file = write(tmp_path, tree)
    settings, problems = configuration.usable(file, {})
    assert [problem.message for problem in problems] == [
        "unknown key 'unit_facter'; did you mean 'unit_factor'?"
    ]
    assert settings.offerings[0].components["cpu"].extras == {"unit_facter": 1}
    assert configuration.checked(file, {}, strict=True).settings is None


def test_a_plugin_that_is_not_here_may_know_any_key_of_a_component(tmp_path: Path) -> None:
    tree = {**changed(OFFERING, "backend_components.cpu.storage_class", "fast"), "reporting_backend": "okd"}
    problems = configuration.checked(write(tmp_path, tree), {}, strict=True).problems
    assert {problem.path: problem.severity for problem in problems if "preserve" not in problem.path} == {
        "offerings[0].reporting_backend": Severity.ERROR,
        "offerings[0].backend_components.cpu.storage_class": Severity.WARNING,
    }


@dataclass(frozen=True)
class OfSite:
    storage_class: str = key("", "the kind of disk")


def test_a_plugin_names_its_keys_of_components(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmPlugin, "component_keys", OfSite, raising=False)
    file = write(tmp_path, changed(OFFERING, "backend_components.cpu.storage_class", "fast"))
    assert configuration.checked(file, {}, strict=True).problems == ()


def test_keys_that_hold_what_anchors_repeat(site: Site) -> None:
    text = f"""
x-cpu: &cpu {{measured_unit: h, accounting_type: usage, label: CPU}}
_access: &access {{waldur_api_url: "https://w.example.com/api/", waldur_api_token: "t0ken"}}
offerings:
  - <<: *access
    name: One
    waldur_offering_uuid: {UUID}
    backend_type: slurm
    order_processing_backend: slurm
    backend_components: {{cpu: {{<<: *cpu, unit_factor: 60}}, gpu: *cpu}}
"""
    loaded = site.load_text(text, strict=True)
    assert loaded.problems == ()
    assert only_offering(loaded).components["cpu"].unit_factor == 60


@pytest.mark.parametrize(
    ("key", "value"),
    [("username_reconciliation_enabled", True), ("backend_settings.target_api_token", "t0ken")],
)
def test_keys_that_only_other_backends_read(tmp_path: Path, key: str, value: object) -> None:
    (problem,) = configuration.checked(
        write(tmp_path, changed(OFFERING, key, value)), {}, strict=True
    ).problems
    assert problem.path == f"offerings[0].{key}"
    assert (
        problem.message.startswith("it has no effect with slurm: ") and problem.severity is Severity.WARNING
    )


@pytest.mark.parametrize(("days", "is_reported"), [(3, False), (5, True), (0, True)])
def test_days_of_keys_that_no_backend_makes(site: Site, days: int, is_reported: bool) -> None:
    loaded = site.load(root(api_key_final_report_days=days), strict=True)
    found = list(configuration.of_keys(loaded.settings))
    assert [problem.path for problem in found] == ["api_key_final_report_days"] * is_reported
    assert all(problem.severity is Severity.WARNING for problem in found)


def test_backend_settings_of_a_backend_are_not_judged_here(site: Site) -> None:
    loaded = site.load(with_offering("backend_settings.qos_pause", "stop"), strict=True)
    assert loaded.problems == ()
    assert only_offering(loaded).backend_settings["qos_pause"] == "stop"


def test_the_registry_judges_them_with_the_same_words() -> None:
    known = keys_of(BackendSettingsKeys).keys() | {"qos_paused"}
    problems = unknown_keys({"qos_pause": 1, "soft_delete": 1}, known, "offerings[0].backend_settings")
    assert problems == [
        Problem(
            Severity.WARNING,
            "offerings[0].backend_settings.qos_pause",
            "unknown key 'qos_pause'; did you mean 'qos_paused'?",
        )
    ]
    assert [p.severity for p in with_strict_errors(problems, strict=True)] == [Severity.ERROR]
    assert [p.severity for p in with_strict_errors(problems, strict=False)] == [Severity.WARNING]


@pytest.mark.parametrize("place", ["backend_components.cpu", "backend_settings.periodic_limits"])
@pytest.mark.parametrize("key", sorted(keys_of(ComputedKeys)))
def test_keys_whose_work_waldur_does_now(site: Site, place: str, key: str) -> None:
    loaded = site.load(with_offering(f"{place}.{key}", 1), strict=True)
    assert loaded.settings is not None
    assert (
        "Waldur's periodic usage policy computes this now" in warnings(loaded)[f"offerings[0].{place}.{key}"]
    )
    assert all(not component.extras for component in only_offering(loaded).components.values())


def test_other_keys_of_periodic_limits_are_the_backends(site: Site) -> None:
    loaded = site.load(
        with_offering("backend_settings.periodic_limits", {"enabled": True, "limit_type": "GrpTRES"}),
        strict=True,
    )
    assert loaded.problems == ()


def test_both_brokers(site: Site) -> None:
    tree = root(offerings=[{**OFFERING, "stomp_enabled": True, "mqtt_enabled": True}])
    assert "STOMP is used" in warnings(site.load(tree))["offerings[0].mqtt_enabled"]
    strictly = site.load(tree, strict=True)
    assert strictly.settings is None
    assert "only one of" in errors(strictly)["offerings[0].mqtt_enabled"]


def test_argument_wins_over_key_strict(site: Site) -> None:
    loaded = site.load(root(strict=True, xyzzy=1), strict=False)
    assert loaded.settings is not None and not loaded.settings.strict


def test_key_given_twice(site: Site) -> None:
    loaded = site.load_text("timezone: UTC\ntimezone: Europe/Tallinn\nofferings: []\n", strict=True)
    assert warnings(loaded)["timezone"] == "given again in line 2; the last one counts"
    assert loaded.settings is not None and str(loaded.settings.timezone) == "Europe/Tallinn"


def test_key_given_twice_deep_in_the_file(site: Site) -> None:
    text = "offerings:\n  - backend_settings:\n      a: 1\n      a: 2\n"
    assert "offerings[0].backend_settings.a" in warnings(site.load_text(text))


def test_merge_keys_are_not_doubles(site: Site) -> None:
    text = "a: &a {enabled: true}\nlog_shipping: {<<: *a, enabled: false}\nofferings: []\n"
    assert "log_shipping.enabled" not in warnings(site.load_text(text))


def test_one_of_two_offerings_of_a_cluster_does_not_name_it(site: Site) -> None:
    settings = dict(OFFERING["backend_settings"])
    named = {**OFFERING, "backend_settings": {**settings, "cluster_name": "c1"}}
    other = {**OFFERING, "waldur_offering_uuid": "f" * 32, "backend_settings": settings}
    path = "offerings[1].backend_settings.cluster_name"
    assert (
        "until the cluster was seen they count as one"
        in warnings(site.load(root(offerings=[named, other])))[path]
    )
    for alike in ([named, {**named, **{"waldur_offering_uuid": "f" * 32}}], [dict(OFFERING), other]):
        assert path not in warnings(site.load(root(offerings=alike)))
