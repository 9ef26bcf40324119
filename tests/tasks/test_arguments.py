# SPDX-License-Identifier: MIT
"""Messages that no process of the cluster sends: who reaches the broker can send any; a task does nothing for them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from celery.app.utils import filter_hidden_settings

from agent.core.errors import ConfigError
from agent.run.backfill.month import LoadOptions
from rig.site import configuration, settings_of
from simulator.server.waldur import SimulatedWaldur
from tasks import arguments, current
from tasks.app import app
from tasks.arguments import ArgumentsRefused
from tasks.base import SiteTask

UUID = "0123456789abcdef0123456789abcdef"
OFFERING = "@"  # the one of the configuration
OPTIONS = LoadOptions(accounts=("a_one",)).as_json()
PASSING: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("order_process.poll", (OFFERING,), {}),
    ("order_process.events", (OFFERING,), {}),
    ("membership_sync.whole", (OFFERING,), {}),
    ("membership_sync.events", (OFFERING, [f"resource:{UUID}"]), {}),
    ("membership_sync.events", (OFFERING,), {"entries": ["project:01234567-89ab-cdef-0123-456789abcdef"]}),
    ("events.rotate_key", (OFFERING, UUID), {}),
    ("membership_sync.rebuild", (OFFERING,), {}),
    ("membership_sync.events", (OFFERING, []), {}),
    ("events.periodic_limits", (OFFERING, {"resource_uuid": UUID}), {}),
    ("looks.person", (OFFERING, UUID, UUID), {}),
    ("looks.plan", (OFFERING, "membership_sync"), {}),
    ("backfill.month", (OFFERING, "2024-01", "0af3", OPTIONS), {}),
    ("backfill.month", (OFFERING, "2024-01", "0af3", {}), {}),
]
REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("looks.person", (OFFERING, UUID, "ann; reboot"), {}),
    ("looks.account", (OFFERING, "../x"), {}),
    ("looks.plan", (OFFERING, "everything"), {}),
    ("order_process.poll", (), {}),
    ("order_process.poll", (OFFERING, "more"), {}),
    ("order_process.poll", ([OFFERING],), {}),
    ("order_process.poll", ("../../etc",), {}),
    ("order_process.poll", (), {"offering_uuid": {"a": 1}}),
    ("drift.report", (None,), {}),
    ("report.poll", (OFFERING,), {"seconds": 1}),
    ("events.rotate_key", (OFFERING, "a b; reboot"), {}),
    ("events.rotate_key", (OFFERING, ""), {}),
    ("events.rotate_key", (OFFERING, 7), {}),
    ("membership_sync.events", (OFFERING, ["project:../projects/"]), {}),
    ("membership_sync.events", (OFFERING,), {"entries": [["x"]]}),
    ("membership_sync.events", (OFFERING, [f"order:{UUID}"]), {}),
    ("membership_sync.events", (OFFERING, 7), {}),
    ("events.import_resources", (OFFERING, "x"), {}),
    ("events.rotate_key", (OFFERING, None), {}),
    ("events.periodic_limits", (OFFERING, "text"), {}),
    ("backfill.month", (OFFERING, "2024-13", "0af3", {}), {}),
    ("backfill.month", (OFFERING, "2024-01", "a:b", {}), {}),
    ("backfill.month", (OFFERING, "2024-01", "0af3", {"unknown": True}), {}),
    ("backfill.month", (OFFERING, "2024-01", "0af3", {"dry_run": "no"}), {}),
    ("backfill.month", (OFFERING, "2024-01", "0af3", {"accounts": [["a"]]}), {}),
    ("backfill.month", (), {"offering_uuid": OFFERING}),
]


@pytest.fixture
def offering_uuid(tmp_path: Path) -> str:
    """The offering of the configuration that this process has for now. Its Waldur is away: nothing may be asked."""
    with SimulatedWaldur() as waldur:
        settings = settings_of(configuration(waldur, tmp_path))
    current.use(settings)
    return settings.offerings[0].uuid


def task_named(name: str) -> SiteTask:
    app.loader.import_default_modules()
    task = app.tasks[name]
    assert isinstance(task, SiteTask)
    return task


def written(value: Any, uuid: str) -> Any:
    """The same arguments with the offering's own uuid."""
    if isinstance(value, dict):
        return {name: written(item, uuid) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(written(item, uuid) for item in value)
    return uuid if value == OFFERING else value


def test_every_argument_of_every_task_has_its_check(offering_uuid: str) -> None:
    app.loader.import_default_modules()
    ours = [task for name, task in app.tasks.items() if not name.startswith("celery.")]
    assert len(ours) >= 10
    names = {name for task in ours for name in inspect.signature(task.run).parameters}
    assert names == set(arguments.CHECKS)


@pytest.mark.parametrize(("name", "args", "kwargs"), PASSING)
def test_what_beat_the_bridge_and_the_loader_send_passes(
    offering_uuid: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    task = task_named(name)
    arguments.check(name, task.run, written(args, offering_uuid), written(kwargs, offering_uuid))


@pytest.mark.parametrize(("name", "args", "kwargs"), REFUSED)
def test_what_no_process_sends_is_refused_before_anything_is_done(
    offering_uuid: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """As a worker calls it: the result is the refusal, also in the handlers that write a month's status."""
    done = task_named(name).apply(written(args, offering_uuid), written(kwargs, offering_uuid))
    assert isinstance(done.result, ArgumentsRefused)
    assert f"the task {name} is not run" in str(done.result)


def test_an_offering_that_is_not_ours_is_refused(offering_uuid: str) -> None:
    done = task_named("events.rotate_key").apply((UUID, UUID))
    assert isinstance(done.result, ConfigError)
    assert f"offering {UUID} is not in the configuration" in str(done.result)


def test_workers_take_json_and_no_modules_and_show_no_password(offering_uuid: str) -> None:
    """What remote control shows of a worker's settings, Flower shows."""
    task_named("order_process.poll")
    assert app.conf.accept_content == app.conf.result_accept_content == ["json"]
    assert not app.conf.worker_pool_restarts
    visible = filter_hidden_settings({**app.conf.table(), "broker_url": "redis://:s3cret@127.0.0.1/0"})
    assert "s3cret" not in str(visible)
