# SPDX-License-Identifier: MIT
"""What a plugin reports becomes usage, and nothing else does: what it does not say is unknown, and never zero."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.core.errors import BackendError, BackendUnavailable, PlanRefused
from agent.core.model import AllocationSpec, Component, Part
from agent.core.periods import Month
from agent.core.usage import Usage, UsageQuery
from backends.base import BackendContext, ChargeReader, ClusterChecks, Scope, UsageCounter
from backends.reference.backend import LATER, ReferenceBackend
from backends.testing.contract import join
from rig import plugin_venv
from tests.backends.reference.conftest import Plugged, hosted

CPU = Component("cpu", "h", "usage", "CPU", unit_factor=60)  # type: ignore[arg-type]
GPU = Component("gpu", "h", "usage", "GPU", unit_factor=60)  # type: ignore[arg-type]


def usage(backend: ReferenceBackend, *accounts: str, month: Month | None = None) -> Usage:
    """What is reported of these accounts in the present month, or another."""
    wanted = month or Month.of(datetime.now(UTC))
    return backend.usage(UsageQuery(wanted, "UTC", accounts=accounts))


def returning(report: str) -> str:
    return f"def used(self, account):\n    return {report}"


def test_amounts_are_in_waldurs_units_whatever_the_factors(plugged: Plugged) -> None:
    found = usage(plugged(returning('{TOTAL: {"cpu": 12.345, "gpu": 0}, "ann": {"cpu": 10}}')), "A_one")
    account = found.accounts["a_one"]
    assert (found.records, found.by_component, found.may_fall, found.unknown) == (1, True, False, {})
    assert str(found.amount(CPU, account.total)) == "12.35"
    assert str(found.amount(GPU, account.total)) == "0.00"
    assert str(found.amount(CPU, account.users["ann"])) == "10.00"
    assert found.amount(GPU, account.users["ann"]) is None


def test_it_gets_settings_components_and_zone_as_the_reference_gives_them(plugged: Plugged) -> None:
    backend = plugged(
        """
        def used(self, account):
            known = self.settings == {"url": "https://x", "deep": {"a": [1]}} and self.timezone == "UTC"
            return {TOTAL: {"cpu": self.components["cpu"]["unit_factor"] if known else 0}}
        """,
        url="https://x",
        deep={"a": [1]},
    )
    assert usage(backend, "a").accounts["a"].total == {"cpu": 60_000_000}


def test_a_past_month_is_asked_for_as_a_period(plugged: Plugged) -> None:
    backend = plugged(
        """
        def get_usage_report_for_period(self, ids, year, month, waldur_resource=None):
            return {ids[0]: {TOTAL: {"cpu": year + month}}} if month == 3 else {}
        """
    )
    assert usage(backend, "a", month=Month(2024, 3)).accounts["a"].total == {"cpu": 2027_000_000}
    april = usage(backend, "a", month=Month(2024, 4))
    assert (april.records, april.accounts, april.unknown) == (0, {}, {})


def test_a_plugin_that_pulls_resources_itself_is_asked_so(plugged: Plugged) -> None:
    """As cscs-dwdi-compute, which counts the cluster that the offering's `backend_id` names."""
    backend = plugged(
        """
        def pull_resource(self, resource):
            usage = {TOTAL: {"cpu": {"alps": 1, "eiger": 2}[resource.offering_backend_id]}}
            return None if resource.backend_id == "gone" else SimpleNamespace(usage=usage)

        def get_usage_report_for_period(self, ids, year, month, waldur_resource=None):
            return {waldur_resource.backend_id: self.pull_resource(waldur_resource).usage}
        """,
        before="from types import SimpleNamespace",
    )
    for month in (Month.of(datetime.now(UTC)), Month(2024, 3)):
        asked = UsageQuery(month, "UTC", accounts=("a",), offering_backend_id="eiger")
        assert backend.usage(asked).accounts["a"].total == {"cpu": 2_000_000}
    now = UsageQuery(Month.of(datetime.now(UTC)), "UTC", accounts=("gone",), offering_backend_id="eiger")
    assert backend.usage(now).records == 0


WRONG = {
    '{TOTAL: {"cpu": float("nan")}}': "cpu is nan, and usage is a number from 0 to 10^18",
    '{TOTAL: {"cpu": float("inf")}}': "cpu is inf, and usage is a number",
    '{TOTAL: {"cpu": -0.01}}': "cpu is -0.01, and usage is a number",
    '{TOTAL: {"cpu": 10**30}}': "cpu is 1.00000e+30, and usage is a number",
    '{TOTAL: {"cpu": 10**5000}}': "ValueError: Exceeds the limit",
    '{TOTAL: {"cpu": True}}': "cpu is True, and usage is a number",
    '{TOTAL: {"cpu": "7"}}': "cpu is '7', and usage is a number",
    '{TOTAL: {"cpu": None}}': "cpu is None, and usage is a number",
    "{TOTAL: 5}": "what TOTAL_ACCOUNT_USAGE has used is no map of components",
    '{TOTAL: {"cpu": 1}, "ann": [1]}': "what ann has used is no map of components",
    '{TOTAL: {"cpu": 1}, "ann": {"cpu": -1}}': "cpu is -1, and usage is a number",
    '{TOTAL: {"cpu": 1}, "a\\x1b[2Jn": {"cpu": 1}}': "is no username",
    '{"ann": {"cpu": 1}}': "the report is no map with TOTAL_ACCOUNT_USAGE",
    "[1]": "the report is no map with TOTAL_ACCOUNT_USAGE",
    '{TOTAL: {"cpu": object()}}': "TypeError: a report cannot have a value of the type object",
    '{TOTAL: {("cpu", 1): 1}}': "TypeError: keys must be str",
    "1 / 0": "ZeroDivisionError: division by zero",
    "exit('no licence')": "SystemExit: no licence",
}


@pytest.mark.parametrize(("report", "reason"), WRONG.items())
def test_a_wrong_report_of_one_account_is_unknown_and_the_others_count(
    plugged: Plugged, report: str, reason: str
) -> None:
    good = '{TOTAL: {"cpu": 1}}'
    found = usage(plugged(returning(f'{good} if account == "good" else {report}')), "bad", "good")
    assert list(found.accounts) == ["good"]
    assert found.records == 1
    assert reason in found.unknown["bad"]


@pytest.mark.parametrize("report", ["1 / 0", '{TOTAL: {"cpu": float("nan")}}'])
def test_where_nothing_is_usage_it_is_an_outage(plugged: Plugged, report: str) -> None:
    with pytest.raises(BackendUnavailable, match=r"plugin tally in .*(ZeroDivisionError|cpu is nan)"):
        usage(plugged(returning(report)), "a", "b")


@pytest.mark.parametrize("last", ['{TOTAL: {"cpu": 1}}', "None"])
def test_accounts_that_fail_do_not_hide_those_behind_them(plugged: Plugged, last: str) -> None:
    bad = [f"a{n}" for n in range(5)]
    found = usage(plugged(returning(f'{last} if account == "z" else 1 / 0')), *bad, "z")
    assert list(found.accounts) == (["z"] if last != "None" else [])
    assert list(found.unknown) == bad


def test_a_service_that_is_away_is_asked_for_as_long_as_a_month_may_take(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    venv = plugin_venv.make(tmp_path, "def used(self, account):\n    print('asked for', account)\n    1 / 0")
    backend = ReferenceBackend(hosted(venv), BackendContext("0" * 32, tmp_path), month_s=0)
    with pytest.raises(BackendUnavailable, match="ZeroDivisionError"):
        usage(backend, *(f"a{n}" for n in range(50)))
    assert caplog.text.count("asked for") == 1


def test_where_it_answers_slowly_each_account_has_its_turn(tmp_path: Path) -> None:
    venv = plugin_venv.make(tmp_path)
    backend = ReferenceBackend(hosted(venv), BackendContext("0" * 32, tmp_path), month_s=0)
    answered = []
    for _ in range(3):
        found = usage(backend, "a", "b", "c")
        answered += found.accounts
        assert found.accounts.keys() | found.unknown.keys() == {"a", "b", "c"}
    assert sorted(answered) == ["a", "b", "c"]


def test_an_account_at_which_it_dies_leaves_the_others_their_usage(plugged: Plugged) -> None:
    backend = plugged(
        """
        def used(self, account):
            return os._exit(3) if account == "b" else {TOTAL: {"cpu": 1}}
        """,
        before="import os",
    )
    found = usage(backend, "a", "b", "c")
    assert list(found.accounts) == ["a"]
    assert "ended with 3" in found.unknown["b"]
    assert found.unknown["c"] == LATER
    found = usage(backend, "a", "b", "c")
    assert set(found.accounts) == {"a", "c"}
    assert "ended with 3" in found.unknown["b"]
    with pytest.raises(BackendUnavailable, match="ended with 3"):
        usage(backend, "b")


def test_a_report_that_is_no_dict_is_an_outage(plugged: Plugged) -> None:
    with pytest.raises(BackendUnavailable, match="a report is a dict, and this one is of the type list"):
        usage(plugged("def _get_usage_report(self, ids):\n    return []"), "a")


def test_what_is_not_named_is_unknown(plugged: Plugged) -> None:
    found = usage(
        plugged("def _get_usage_report(self, ids):\n    return {'other': {TOTAL: {'cpu': 1}}}"), "a"
    )
    assert (found.records, found.accounts) == (0, {})


def test_other_components_are_logged_once_and_not_reported(
    plugged: Plugged, caplog: pytest.LogCaptureFixture
) -> None:
    backend = plugged(returning('{TOTAL: {"cpu": 1, "tokens": -5}, "ann": {"beans": 1}}'))
    for _ in range(2):
        assert usage(backend, "a", "b").accounts["a"].total == {"cpu": 1_000_000}
    said = [
        record.message for record in caplog.records if "backend_components does not have" in record.message
    ]
    assert len(said) == 1
    assert "reports beans, tokens, which" in said[0]


def test_numbers_of_other_libraries_are_numbers(plugged: Plugged) -> None:
    found = usage(
        plugged(returning('{TOTAL: {"cpu": Decimal("2.50")}}'), before="from decimal import Decimal"), "a"
    )
    assert found.accounts["a"].total == {"cpu": 2_500_000}


def test_usage_that_may_fall_is_as_the_plugin_says(plugged: Plugged) -> None:
    assert usage(plugged("supports_decreasing_usage = True"), "a").may_fall


def test_it_serves_reports_and_nothing_else(plugged: Plugged) -> None:
    backend = plugged()
    assert isinstance(backend, ChargeReader | ClusterChecks)
    assert not isinstance(backend, UsageCounter)
    assert backend.observe(Scope()).complete == {Part.ACCOUNTS}
    (outcome,) = backend.apply([join("a", "ann")])
    assert "neither orders nor members" in str(outcome.error)
    with pytest.raises(BackendError, match="neither orders nor members"):
        backend.prepare()
    spec: Any = AllocationSpec
    with pytest.raises(PlanRefused, match="neither orders nor members"):
        backend.canonical(spec, backend.observe())
    assert not backend.executed


def test_check_asks_for_the_service_and_the_components(plugged: Plugged) -> None:
    health = plugged().check()
    assert (health.version, health.cluster, health.problems) == ("site-tally 1.2", "tally", ())


@pytest.mark.parametrize(
    ("methods", "reason"),
    {
        "def ping(self):\n    print('refused')\n    return False": "its service does not answer (ping): refused",
        "def list_components(self):\n    return ['tokens']": "reports tokens, and backend_components has none of them",
    }.items(),
)
def test_check_finds_what_is_wrong(plugged: Plugged, methods: str, reason: str) -> None:
    (problem,) = plugged(methods).check().problems
    assert reason in problem


def test_its_diagnostics_are_a_check(plugged: Plugged) -> None:
    (look,) = plugged().checks().values()
    found: Any = look()
    assert (found.state, found.found) == ("ok", "it is well")


def test_its_diagnostics_may_find_something(plugged: Plugged) -> None:
    backend = plugged("def diagnostics(self):\n    print('no token')\n    return False")
    (look,) = backend.checks().values()
    found: Any = look()
    assert (found.state, found.found) == ("problem", "no token")
