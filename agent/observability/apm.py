# SPDX-License-Identifier: MIT
"""Errors and the times of tasks to Elastic APM, where `elastic_apm_server_url` is set and its package is installed.

The variables ELASTIC_APM_* of that package count too. No local variables, no bodies, no secrets of the configuration.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from agent import __version__
from agent.config.model import Settings
from agent.observability.sentry import redacted, secrets_of

log = logging.getLogger(__name__)

SERVICE = "waldur-site-agent"
MISSING = (
    "the package elastic-apm is not installed, so that nothing is sent there: "
    "pip install 'waldur-site-cluster[apm]', or leave this key out"
)
_secrets: Sequence[str] = ()


def is_installed() -> bool:
    return find_spec("elasticapm") is not None


def set_up(settings: Settings) -> Any:
    """Send what is logged as ERROR, and what the libraries are instrumented for; return the client, if there is one."""
    if not settings.elastic_apm_server_url:
        return None
    if not is_installed():
        log.warning("elastic_apm_server_url: %s", MISSING)
        return None
    # Imported here: only sites with an APM server shall pay for it.
    import elasticapm
    from elasticapm.handlers.logging import LoggingHandler

    global _secrets
    _secrets = secrets_of(settings)
    client = elasticapm.Client(
        server_url=settings.elastic_apm_server_url,
        service_name=SERVICE,
        service_version=__version__,
        collect_local_variables="off",
        capture_body="off",
        # Asking the networks of clouds for their names takes seconds elsewhere.
        cloud_provider="none",
        processors=["agent.observability.apm.without_secrets"],
    )
    handler = LoggingHandler(client=client)
    handler.setLevel(logging.ERROR)
    logging.getLogger().addHandler(handler)
    elasticapm.instrument()
    return client


def without_secrets(_client: Any, event: Any) -> Any:
    """Return an event of the library as it may leave this host."""
    return redacted(event, _secrets)
