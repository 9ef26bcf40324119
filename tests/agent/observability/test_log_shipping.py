# SPDX-License-Identifier: MIT
"""The agent's log in Waldur: whose lines, which, what is removed from them, and what an outage does."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from celery import Celery

from agent.bridge.dead_letters import DeadLetters
from agent.bridge.dispatcher import Dispatcher
from agent.bridge.inbox import Inbox
from agent.bridge.model import Gap
from agent.config.model import LogShipping, Mode, Settings
from agent.core.events import Job, QueueUnavailable
from agent.observability import logs
from agent.run.service import log_shipping
from agent.run.service.log_shipping import LogShipper
from agent.waldur.agent_logs import LogLine
from rig.processes import wait_until
from rig.site import configuration, settings_of
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import AgentLogLine
from tasks import arguments
from tasks.base import SiteTask
from tests.agent.cli.operator_site import run_program

log = logging.getLogger("tests.shipped")
HOURLY = LogShipping(enabled=True, interval_seconds=3600)


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.1") as server:
        yield server


def settings(waldur: SimulatedWaldur, folder: Path, shipping: LogShipping = HOURLY) -> Settings:
    keys = {"reporting_backend": "slurm", "waldur_api_token": waldur.token("agent")}
    return replace(settings_of(configuration(waldur, folder, **keys)), log_shipping=shipping)


@pytest.fixture
def shipper(waldur: SimulatedWaldur, tmp_path: Path) -> Iterator[LogShipper]:
    made = log_shipping.set_up(settings(waldur, tmp_path))
    assert made is not None
    yield made
    logging.getLogger().removeHandler(made)
    made.close()


def shipped(waldur: SimulatedWaldur) -> list[AgentLogLine]:
    return list(waldur.store.logs)


def test_lines_of_the_configured_level_come_to_the_identity_of_the_offering(
    waldur: SimulatedWaldur, shipper: LogShipper
) -> None:
    log.info("nothing happens")
    with logs.about(offering=waldur.seed.offering_uuid):
        try:
            raise ValueError("too small")
        except ValueError:
            log.exception("order %s is stuck with token %s", "abc", waldur.token("agent"))
    assert shipped(waldur) == []
    shipper.ship()
    (line,) = shipped(waldur)
    assert (line.level, line.module) == ("ERROR", "tests.shipped")
    assert line.message == "order abc is stuck with token [REDACTED]: ValueError: too small"
    (identity,) = waldur.store.identities
    assert line.identity_uuid == identity.uuid
    shipper.ship()
    assert len(shipped(waldur)) == 1


def test_an_identity_that_the_bridge_has_made_is_left_as_it_is(
    waldur: SimulatedWaldur, shipper: LogShipper, tmp_path: Path
) -> None:
    log.warning("one")
    shipper.ship()
    again = log_shipping.set_up(settings(waldur, tmp_path))
    assert again is not None
    log.warning("two")
    again.ship()
    logging.getLogger().removeHandler(again)
    assert len(list(waldur.store.identities)) == 1
    assert not [name for name in waldur.request_counts() if name.startswith("PUT ")]


def test_lines_wait_for_an_outage_to_end(waldur: SimulatedWaldur, shipper: LogShipper) -> None:
    waldur.inject(Fault(method="POST", path="marketplace-site-agent-logs", status=503))
    log.warning("one")
    shipper.ship()
    log.warning("two")
    shipper.ship()
    assert [line.message for line in shipped(waldur)] == ["one", "two"]


def test_a_server_without_logs_is_asked_once(tmp_path: Path) -> None:
    with SimulatedWaldur("8.0") as old:
        made = log_shipping.set_up(settings(old, tmp_path))
        assert made is not None
        for text in ("one", "two"):
            log.warning(text)
            made.ship()
        logging.getLogger().removeHandler(made)
        assert old.request_counts()["POST marketplace-site-agent-logs/"] == 1


def kept(usual: str = "", most_mb: int = 1) -> tuple[LogShipper, list[tuple[str, LogLine]]]:
    sent: list[tuple[str, LogLine]] = []
    shipping = replace(HOURLY, buffer_mb=most_mb)
    made = LogShipper(
        shipping,
        lambda offering, lines: sent.extend((offering, line) for line in lines),
        known=frozenset({"a", "b"}),
        usual=usual,
    )
    return made, sent


def warning(text: str) -> logging.LogRecord:
    return logging.LogRecord("agent.x", logging.WARNING, __file__, 1, text, None, None)


def test_no_line_about_an_offering_of_another_waldur_is_sent() -> None:
    """Two offerings of two Waldurs: only lines of their own tasks are shipped."""
    made, sent = kept()
    made.handle(warning("of whom?"))
    with logs.about(offering="b"):
        made.handle(warning("of b"))
    with logs.about(offering="c"):
        made.handle(warning("of a month"))
    made.ship()
    assert [(offering, line.message) for offering, line in sent] == [("b", "of b")]


def test_the_oldest_lines_make_room() -> None:
    made, sent = kept("a")
    for number in range(5):
        made.handle(warning(f"{number}" + "x" * 300_000))
    made.ship()
    assert [line.message[0] for _, line in sent] == ["2", "3", "4"]


def test_a_forked_process_ships_its_own_lines_only() -> None:
    made, sent = kept("a")
    made.handle(warning("of the parent"))
    child = os.fork()
    if child == 0:
        made.handle(warning("of the child"))
        made.ship()
        os._exit(0 if [line.message for _, line in sent] == ["of the child"] else 1)
    assert os.waitpid(child, 0)[1] == 0
    made.ship()
    assert [line.message for _, line in sent] == ["of the parent"]


def test_it_is_off_unless_it_is_asked_for(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    assert log_shipping.set_up(settings(waldur, tmp_path, LogShipping())) is None


def test_lines_of_a_task_are_about_its_offering(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = kept()
    monkeypatch.setitem(arguments.CHECKS, "offering_uuid", str)

    class Speaking(SiteTask):
        name = "speaking"

        def run(self, offering_uuid: str) -> None:
            made.handle(warning("in the task"))

    Speaking.bind(Celery("test", set_as_current=False))
    Speaking()("b")
    made.handle(warning("after it"))
    made.ship()
    assert [(offering, line.message) for offering, line in sent] == [("b", "in the task")]


def test_a_pass_of_a_command_ships_its_lines_before_it_ends(waldur: SimulatedWaldur, tmp_path: Path) -> None:
    """`run --once` in a process of its own, without a queue; the pass fails, for the cluster is not there."""
    keys = {"waldur_api_token": waldur.token("agent"), "backend": {"slurm_bin_path": "/nowhere"}}
    config = configuration(waldur, tmp_path, **keys)  # type: ignore[arg-type]
    tree = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**tree, "log_shipping": {"enabled": True}}))
    waldur.inject(Fault(method="GET", path="marketplace-orders", status=503, times=1))
    done = run_program("run", "order_process", "--once", "-c", str(config))
    assert "answered 503" in done.err
    assert shipped(waldur) != []
    (identity,) = waldur.store.identities
    assert {line.identity_uuid for line in shipped(waldur)} == {identity.uuid}


def test_lines_of_the_bridge_are_about_the_offering_of_the_message() -> None:
    made, sent = kept("a")
    logging.getLogger().addHandler(made)
    inbox = Inbox()
    dispatcher = Dispatcher(inbox, QueueThatTakesNothing(), DeadLetters(Path("/nowhere")))
    dispatcher.start()
    inbox.put_gap(Gap("b", "why"))
    try:
        wait_until("a line", lambda: bool(made._lines))
    finally:
        dispatcher.drain(0)
        logging.getLogger().removeHandler(made)
    made.ship()
    assert {(offering, line.level) for offering, line in sent} == {("b", "WARNING")}


class QueueThatTakesNothing:
    def send(self, job: Job) -> bool:
        raise QueueUnavailable("the queue takes no tasks")

    def send_heartbeat(self, offering_uuid: str, modes: Iterable[Mode]) -> None:
        raise QueueUnavailable("the queue takes no heartbeat")
