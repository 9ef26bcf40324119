# SPDX-License-Identifier: MIT
"""The last usage of a resource where a plugin of the reference reports it, and SLURM has the account."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.run import passes
from backends.base import BackendContext
from backends.reference.backend import ReferenceBackend
from backends.reference.child import Hosted
from rig import plugin_venv
from tests.agent.run.orders.endings import Endings, make
from tests.agent.run.usage.conftest import AGES, make_world
from tests.agent.run.usage.test_plugin import FROM_FILE, used
from tests.agent.run.usage.world import COMPONENTS

__all__ = ["make", "make_world"]


@pytest.mark.parametrize("age", AGES)
def test_a_resource_ends_when_the_plugin_has_said_what_it_used(
    make: Callable[..., Endings], tmp_path: Path, age: str
) -> None:
    endings = make(age)
    world, file = endings.world, tmp_path / "usage.json"
    venv = plugin_venv.make(tmp_path, FROM_FILE, before="import json")
    hosted = Hosted(plugin_venv.NAME, venv, {"file": str(file)}, COMPONENTS)
    site = replace(
        endings.site, usage_backend=ReferenceBackend(hosted, BackendContext("0" * 32, tmp_path), "memory")
    )
    before = world.in_waldur()
    file.write_text(json.dumps({"a_1": "503 from the service", "a_2": used(8, ann=8)}))
    endings.end("a_1", "a_2", "a_3")
    passes.process_orders(site)
    assert [endings.is_over(account) for account in ("a_1", "a_2", "a_3")] == [False, True, True]
    file.write_text(json.dumps({"a_1": used(9)}))
    passes.process_orders(site)
    assert endings.is_over("a_1")
    found = world.in_waldur()
    assert [found[account]["cpu"] for account in ("a_1", "a_2", "a_3")] == ["9.00", "8.00", "3.00"]
    # Neither another component nor the share of another user is zero, on no server.
    assert [found[a].get("mem") for a in ("a_1", "a_2")] == [before[a].get("mem") for a in ("a_1", "a_2")]
    assert world.shares("a_2") == {"u2": "2.00", "ann": "8.00"}
