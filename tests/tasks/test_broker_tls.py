# SPDX-License-Identifier: MIT
"""TLS to Redis: a server without a trusted certificate gets no password."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rig.celery_process import REPOSITORY, environment
from rig.certificate import make_certificate
from rig.parts import require
from rig.redis_server import RedisServer
from rig.site import configuration
from rig.warm_python import python
from simulator.server.waldur import SimulatedWaldur
from tests.scale import REDIS_KINDS

pytestmark = pytest.mark.real_part
PING = "from tasks.queue import broker; print(broker.here().client.ping())"


@pytest.fixture(scope="module", params=REDIS_KINDS)
def tls_redis(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RedisServer]:
    require(request.param)
    folder = tmp_path_factory.mktemp("tls")
    certificate = make_certificate(folder, "127.0.0.1")
    server = RedisServer(folder / "redis", tls_certificate=certificate, kind=request.param)
    server.start()
    yield server
    server.stop()


def pinged(server: RedisServer, folder: Path, host: str, options: str) -> tuple[str, str]:
    """What a process of the cluster prints and complains about when it speaks to the server."""
    url = f"rediss://:not-a-secret@{host}:{server.tls_port}/0{options}"
    with SimulatedWaldur() as waldur:
        env = environment(configuration(waldur, folder), url)
    done = subprocess.run(
        [python(), "-c", PING],
        env=env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.stdout.strip(), done.stderr


def test_a_certificate_of_an_unknown_authority_is_refused(tls_redis: RedisServer, tmp_path: Path) -> None:
    said, complaint = pinged(tls_redis, tmp_path, "127.0.0.1", "")
    assert said == ""
    assert "certificate verify failed" in complaint.lower()
    assert "not-a-secret" not in complaint


def test_the_authority_may_be_the_sites_own(tls_redis: RedisServer, tmp_path: Path) -> None:
    options = f"?ssl_ca_certs={tls_redis.tls_certificate}"
    assert "AUTH" in pinged(tls_redis, tmp_path, "127.0.0.1", options)[1], (
        "it speaks with the server, which has no users"
    )
    said, complaint = pinged(tls_redis, tmp_path, "localhost", options)
    assert said == "" and "certificate verify failed" in complaint.lower(), "a certificate for another name"


def test_who_wants_no_verification_has_to_say_so(tls_redis: RedisServer, tmp_path: Path) -> None:
    _, complaint = pinged(tls_redis, tmp_path, "127.0.0.1", "?ssl_cert_reqs=none")
    assert "certificate verify failed" not in complaint.lower() and "AUTH" in complaint
