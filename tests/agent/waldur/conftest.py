# SPDX-License-Identifier: MIT
"""Simulated servers, stand-ins, and clients that talk to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.waldur.client import WaldurClient
from rig.certificate import LOOPBACK, make_certificate
from simulator.server.waldur import SimulatedWaldur
from tests.agent.waldur.clients import client_of
from tests.agent.waldur.stand_in import Script, StandIn

StartWaldur = Callable[..., SimulatedWaldur]
StartStandIn = Callable[..., StandIn]


@pytest.fixture
def start() -> Iterator[StartWaldur]:
    """Starts simulated servers of any age; all of them stop at the end of the test."""
    with ExitStack() as stack:

        def begin(age: str = "8.0", **options: Any) -> SimulatedWaldur:
            return stack.enter_context(SimulatedWaldur(age, **options))

        yield begin


@pytest.fixture
def waldur(start: StartWaldur) -> SimulatedWaldur:
    return start()


@pytest.fixture
def client(waldur: SimulatedWaldur) -> Iterator[WaldurClient]:
    made = client_of(waldur)
    yield made
    made.close()


@pytest.fixture
def stand_in() -> Iterator[StartStandIn]:
    with ExitStack() as stack:

        def begin(script: Script, *, certificate: str = "") -> StandIn:
            return stack.enter_context(StandIn(script, certificate=certificate))

        yield begin


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A self-signed certificate for 127.0.0.1 with its key, in one PEM file."""
    folder: Path = tmp_path_factory.mktemp("tls")
    certificate = make_certificate(folder, LOOPBACK)
    whole = folder / "both.pem"
    whole.write_bytes((folder / "key.pem").read_bytes() + certificate.read_bytes())
    return str(whole)
