# SPDX-License-Identifier: MIT
"""`metrics`: the metrics of this head node and its queues for Prometheus, printed, written to a file, or served."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
from prometheus_client.exposition import generate_latest, write_to_textfile
from prometheus_client.registry import CollectorRegistry

from agent.cli import healthz
from agent.cli.commands.shared import METRICS_PORT, parse_address
from agent.cli.options import read_settings
from agent.cli.output import echo
from agent.config.model import Settings
from agent.core.errors import SiteAgentError
from agent.host import heartbeat
from agent.observability.endpoint import Endpoint
from agent.observability.metrics import Sample, SiteCollector
from agent.run.diagnosis import figures, picture, probes
from agent.run.diagnosis.picture import BrokerStatus
from tasks.queue import inspection

log = logging.getLogger(__name__)


def command(config_file: Path | None, serve: bool, listen: str, out: Path | None) -> int:
    if serve and out:
        raise click.UsageError("--serve and --out exclude each other")
    address = parse_address(listen, METRICS_PORT)
    settings = read_settings(config_file)
    collector = collector_of(settings)
    if serve:
        return _serve(settings, collector, address)
    registry = CollectorRegistry()
    registry.register(collector)
    if out is None:
        echo(*generate_latest(registry).decode().splitlines())
        return 0
    try:
        write_to_textfile(str(out), registry)
    except OSError as error:
        echo(f"error: {out} cannot be written: {error.strerror}", err=True)
        return 1
    return 0


def collector_of(settings: Settings) -> SiteCollector:
    """Return what asks the broker, the state file and the heartbeats."""
    offerings, seen = settings.offerings, BrokerStatus()

    def broker() -> Iterator[Sample]:
        nonlocal seen
        seen = picture.without_broker(settings) or inspection.look(settings, asks_workers=False)
        return figures.of_broker(seen, offerings)

    sources = {
        "broker": broker,
        "state": lambda: figures.of_picture(picture.of_site(settings, offerings, seen)),
        # Apart from the state file: a part that is silent because of it is seen.
        "health": lambda: figures.of_heartbeats(heartbeat.last_heartbeats(settings.state_dir)),
    }
    return SiteCollector(sources, (SiteAgentError, OSError))


def _serve(settings: Settings, collector: SiteCollector, address: tuple[str, int]) -> int:
    def health() -> tuple[bool, str]:
        found = healthz.of_parts(settings.state_dir, (), heartbeat.MAX_AGE_S)
        return not probes.failed(found), "".join(f"{healthz.line(each)}\n" for each in found)

    try:
        endpoint = Endpoint(collector, address, health=health)
    except OSError as error:
        host, port = address
        echo(f"error: nothing can be served at {host}:{port}: {error.strerror or error}", err=True)
        return 1

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    log.info("metrics: %s", endpoint.url)
    try:
        endpoint.serve()
    except KeyboardInterrupt:
        return 0
    return 0
