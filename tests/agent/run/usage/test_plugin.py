# SPDX-License-Identifier: MIT
"""Reports by a plugin of the reference, to the simulated Waldur."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.config.model import Mode
from agent.core.periods import Month
from agent.run import passes
from agent.run.backfill.month import LoadOptions, load_month
from agent.run.results import PassReport, Result
from agent.run.site import Site, connect
from agent.run.usage import check, view
from rig import plugin_venv
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from tests.agent.run.usage.world import COMPONENTS, scenario

pytestmark = pytest.mark.safety

# The plugin reports what a file says: by account, or an exception.
FROM_FILE = """
def _get_usage_report(self, ids):
    known = json.load(open(self.settings["file"]))
    return {name: self.told(known[name]) for name in ids if name in known}

def told(self, found):
    if isinstance(found, str):
        raise ValueError(found)
    return found
"""
THIS = Month.of(datetime.now(UTC))


def used(cpu: float, **users: float) -> dict[str, dict[str, float]]:
    return {"TOTAL_ACCOUNT_USAGE": {"cpu": cpu}, **{user: {"cpu": amount} for user, amount in users.items()}}


class PluginWorld:
    """`says` sets what the plugin reports, `report` is one pass, `in_waldur` what Waldur then holds of `cpu`."""

    def __init__(self, waldur: SimulatedWaldur, folder: Path, methods: str) -> None:
        self.waldur, self.file = waldur, folder / "usage.json"
        venv = plugin_venv.make(folder, FROM_FILE + methods, before="import json")
        self.accounts = [f"a_{number}" for number in range(1, len(waldur.seed.resource_uuids) + 1)]
        for account, uuid in zip(self.accounts, waldur.seed.resource_uuids, strict=True):
            waldur.site.change("resources", uuid, backend_id=account)
        keys = {
            "reporting_backend": plugin_venv.NAME,
            "plugin_venv": str(venv),
            "order_processing_backend": "",
        }
        path = configuration(waldur, folder, components=COMPONENTS, backend={"file": str(self.file)}, **keys)
        settings = settings_of(path)
        self.site: Site = connect(settings, settings.offerings[0], Mode.REPORT)

    def says(self, **accounts: Any) -> None:
        self.file.write_text(json.dumps(accounts))

    def report(self) -> PassReport:
        return passes.report_usage(self.site)

    def in_waldur(self, component: str = "cpu") -> dict[str, str]:
        return {
            self.accounts[self.waldur.seed.resource_uuids.index(row.resource_uuid)]: f"{row.usage:.2f}"
            for row in self.waldur.store.usages
            if row.component_type == component and row.billing_period == THIS.first_day
        }

    def shares(self) -> dict[str, str]:
        return {share.username: f"{share.usage:.2f}" for share in self.waldur.store.user_usages}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., PluginWorld]]:
    with SimulatedWaldur("8.0", scenario=scenario()) as waldur:
        yield lambda methods="": PluginWorld(waldur, tmp_path, methods)


@pytest.fixture
def world(make: Callable[..., PluginWorld]) -> PluginWorld:
    return make()


def test_it_reports_in_waldurs_units_and_once(world: PluginWorld) -> None:
    world.says(a_1=used(1.5, ann=1.5), a_2=used(0), a_3=used(12.345), a_4=used(7, ann=3, bob=4))
    report = world.report()
    assert (report.error, report.failed) == (None, False)
    assert world.in_waldur() == {"a_1": "1.50", "a_2": "0.00", "a_3": "12.35", "a_4": "7.00"}
    # `mem` is a component that the plugin does not name: unknown, and not zero.
    assert world.in_waldur("mem") == {}
    assert world.shares() == {"ann": "3.00", "bob": "4.00"}
    world.waldur.requests.reset()
    assert world.report().in_step == 4
    assert not world.waldur.requests.entries("POST *")


def test_what_it_does_not_name_stays_as_it_was(world: PluginWorld) -> None:
    world.says(a_1=used(1, ann=1), a_2=used(2, bob=2))
    world.report()
    world.says(a_1=used(3), a_3=used(5))
    report = world.report()
    assert world.in_waldur() == {"a_1": "3.00", "a_2": "2.00", "a_3": "5.00"}
    assert world.shares() == {"ann": "1.00", "bob": "2.00"}
    said = {each.account: each.message for each in report.resources if each.result is Result.WAITING}
    assert said["a_2"] == "account a_2 is not named by the plugin: nothing is known of its usage"


def test_an_exception_zeroes_nothing(world: PluginWorld) -> None:
    world.says(a_1=used(1), a_2=used(2))
    world.report()
    world.says(a_1="503 from the service", a_2=used(4))
    report = world.report()
    assert world.in_waldur() == {"a_1": "1.00", "a_2": "4.00"}
    said = {each.account: each.message for each in report.resources}
    assert "ValueError: 503 from the service" in said["a_1"]
    world.says(**dict.fromkeys(world.accounts, "503 from the service"))
    report = world.report()
    assert report.error is not None
    assert report.error.retryable
    assert world.in_waldur() == {"a_1": "1.00", "a_2": "4.00"}


def test_what_failed_is_said_where_nothing_is_named(world: PluginWorld) -> None:
    world.says(a_1="503 from the service")
    (note,) = world.report().notes
    assert "the plugin names no usage" in note
    assert "a_1: plugin tally in " in note
    assert "ValueError: 503 from the service" in note


def test_usage_that_falls_is_held(world: PluginWorld) -> None:
    world.says(a_1=used(5), a_2=used(2))
    world.report()
    world.says(a_1=used(1), a_2=used(3))
    (held,) = world.report().held
    assert held.brief == f"usage of a_1 in {THIS} would get less: cpu from 5.00 to 1.00"
    assert world.in_waldur() == {"a_1": "5.00", "a_2": "3.00"}


def test_usage_that_may_fall_is_not_held(make: Callable[..., PluginWorld]) -> None:
    world = make("supports_decreasing_usage = True")
    world.says(a_1=used(5, ann=5))
    world.report()
    world.says(a_1=used(1, ann=0.5))
    assert world.report().held == ()
    assert (world.in_waldur(), world.shares()) == ({"a_1": "1.00"}, {"ann": "0.50"})


def test_a_plugin_without_past_months_reports_the_present_one(make: Callable[..., PluginWorld]) -> None:
    world = make(
        """
def get_usage_report_for_period(self, ids, year, month, waldur_resource=None):
    raise NotImplementedError
"""
    )
    world.says(a_1=used(5))
    report = world.report()
    assert (report.error, world.in_waldur()) == (None, {"a_1": "5.00"})
    assert f"{THIS.previous} is unknown, and nothing of it is submitted: plugin tally" in "".join(
        report.notes
    )


def test_a_month_is_loaded_from_its_history(world: PluginWorld) -> None:
    world.says(a_1=used(5, ann=5), a_2=used(0))
    world.waldur.site.change(
        "users", world.waldur.store.users.where("username", "agent")[0].uuid, is_staff=True
    )
    outcome = load_month(world.site, THIS.previous, LoadOptions())
    assert outcome.failures == ()
    rows = {(row.billing_period, row.component_type): f"{row.usage:.2f}" for row in world.waldur.store.usages}
    assert rows == {(THIS.previous.first_day, "cpu"): "5.00"}


def test_it_knows_the_backend_id_of_the_offering(make: Callable[..., PluginWorld]) -> None:
    world = make(
        """
def pull_resource(self, resource):
    self.usage = {TOTAL: {"cpu": len(resource.offering_backend_id)}}
    return self
"""
    )
    world.says()
    world.waldur.site.change("offerings", world.waldur.seed.offering_uuid, backend_id="eiger")
    assert world.report().error is None
    assert set(world.in_waldur().values()) == {"5.00"}


def test_tables_show_what_it_reports(world: PluginWorld) -> None:
    world.says(a_1=used(5, ann=5), a_2=used(1))
    sheet = view.view(world.site, 1).sheet
    figures = {each.account: dict(each.figures) for each in sheet.accounts}
    assert {name: str(found.get(("cpu", THIS))) for name, found in figures.items()} == {
        "a_1": "5.00", "a_2": "1.00", "a_3": "None", "a_4": "None",
    }  # fmt: skip
    checked = check.check(world.site, THIS)
    assert checked.charged == "what the plugin tally reports"
    assert {line.account for line in checked.comparison.lines} >= {"a_1", "a_2"}
