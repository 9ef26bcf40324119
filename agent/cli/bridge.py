# SPDX-License-Identifier: MIT
"""`bridge`: one process that listens to the events of all offerings, until it is asked to stop."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

from agent.bridge.instance import Instance
from agent.bridge.service import Bridge, BridgeParts
from agent.cli.commands.shared import BRIDGE_METRICS_PORT, parse_address
from agent.cli.output import echo
from agent.cli.settings import load_settings
from agent.config import environment
from agent.config.model import Settings
from agent.observability.endpoint import Endpoint
from agent.observability.metrics import SiteCollector
from agent.run import site as sites
from agent.run.service import log_shipping, services
from agent.waldur.identities import Program

log = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def command(config_file: Path | None, address: str | None) -> int:
    where = parse_address(address, BRIDGE_METRICS_PORT) if address else None
    if config_file is not None:
        os.environ[environment.CONFIG] = str(config_file.absolute())
    settings = load_settings(config_file)
    log_shipping.set_up(settings)
    bridge = new_bridge(settings)
    if bridge is None:
        echo("no offering here has stomp_enabled or mqtt_enabled: there is nothing to listen to", err=True)
        return 2
    for stop in STOP_SIGNALS:
        signal.signal(stop, lambda *_: bridge.stop())
    endpoint = _serve(bridge, where) if where else None
    bridge.run()
    if endpoint is not None:
        endpoint.close()
    return 0


def _serve(bridge: Bridge, address: tuple[str, int]) -> Endpoint | None:
    """Serve the metrics; None, with a warning, where that is not possible: events go on without."""
    try:
        endpoint = Endpoint(SiteCollector({"bridge": bridge.figures}, ()), address)
    except OSError as error:
        log.warning("no metrics are served at %s:%d: %s", *address, error.strerror or error)
        return None
    endpoint.start()
    log.info("metrics of the bridge: %s", endpoint.url)
    return endpoint


def new_bridge(settings: Settings) -> Bridge | None:
    """Return the bridge of these settings; None where no offering has events."""
    # Imported here: Celery reads its settings from the file that the variable names.
    from tasks.events import TaskQueue

    offerings = [offering for offering in settings.offerings if services.wanted_types(offering)]
    if not offerings:
        return None
    return Bridge(
        BridgeParts(
            offerings=offerings,
            clients={o.uuid: sites.client(o, "event_process") for o in offerings},
            program=Program.here(settings.source),
            outbox=TaskQueue(),
            state_dir=settings.state_dir,
            instance=Instance(settings.state_dir).name,
            own_file=settings.heartbeat_path,
        )
    )
