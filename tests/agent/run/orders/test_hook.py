# SPDX-License-Identifier: MIT
"""A site's own program decides on pending orders; where it fails nothing is decided, and the order waits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.core.waldur_actions import ApproveOrder, RejectOrder
from agent.run import passes
from agent.run.orders import decisions
from agent.run.results import Result
from agent.run.site import Site
from rig.slurm_cluster import SlurmCluster
from simulator.server.waldur import SimulatedWaldur
from simulator.world.records import OrderState
from tests.agent.run.orders.conftest import SiteFactory
from tests.agent.run.orders.test_lifecycle import create, tree
from tests.one_mode import planned_orders

pytestmark = pytest.mark.every_slurm(one_of=10)

LIMIT = 10
# Cores beyond LIMIT are rejected, an allocation called "later" waits, all others are accepted.
DECIDE = f"""#!/usr/bin/env python3
import json, sys
asked = json.load(sys.stdin)
open(sys.argv[1], "a").write(json.dumps(asked) + "\\n")
if asked["resource"]["slug"] == "later":
    print(json.dumps({{"decision": "wait", "message": "the board\\n meets on Monday"}}))
elif asked["order"]["limits"].get("cpu", 0) > {LIMIT}:
    print(json.dumps({{"decision": "reject", "message": "too much"}}))
else:
    print('{{"decision":')
    print('"accept"}}')
"""


def program(folder: Path, text: str, mode: int = 0o700) -> Path:
    path = folder / "decide"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def site_with(in_memory: SiteFactory, path: Path, *words: str, **settings: Any) -> Site:
    return in_memory(order_hook={"command": [str(path), *words], **settings})


def states(waldur: SimulatedWaldur) -> dict[str, OrderState]:
    return {waldur.resource(order.resource_uuid).slug: order.state for order in waldur.store.orders}


def test_orders_are_accepted_rejected_and_left_waiting(
    slurm: SlurmCluster,
    on_slurm: SiteFactory,
    waldur: SimulatedWaldur,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = tmp_path / "seen"
    site = site_with(on_slurm, program(tmp_path, DECIDE), str(seen))
    for name, cores in (("small", 1), ("large", 99), ("later", 1)):
        create(waldur, name, cpu=cores)
    planned = planned_orders(site)
    (rejected,) = [a for a in planned.actions if isinstance(a, RejectOrder)]
    (approved,) = [a for a in planned.actions if isinstance(a, ApproveOrder)]
    assert "accepted by the site's hook" in approved.reason
    report = passes.process_orders(site)
    assert {o.result for o in report.orders} == {Result.DONE, Result.FAILED, Result.WAITING}
    assert not report.failed
    assert states(waldur) == {
        "small": OrderState.DONE,
        "large": OrderState.REJECTED,
        "later": OrderState.PENDING_PROVIDER,
    }
    assert waldur.order(rejected.order).provider_rejection_comment == "too much"
    assert {"a_small", "a_large", "a_later"} & set(tree(slurm)) == {"a_small"}
    (waits,) = [o for o in report.orders if o.result is Result.WAITING]
    assert waits.message == "the site's hook lets it wait: the board meets on Monday"
    assert caplog.text.count("meets on Monday") == 1  # when it was planned, and not again
    # Only what waits is asked about again, and without reading the cluster.
    seen.write_text("")
    again = passes.process_orders(site)
    assert [json.loads(line)["resource"]["slug"] for line in seen.read_text().splitlines()] == ["later"]
    assert again.counted() == {"waiting": 1}
    assert not again.effort.commands


def test_the_hook_is_given_an_order_and_no_secret(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_API_TOKEN", "do-not-reveal")
    script = '#!/bin/sh\n(cat; env) > "$1"\necho \'{"decision": "wait"}\'\n'
    seen = tmp_path / "seen"
    site = site_with(in_memory, program(tmp_path, script), str(seen))
    uuid = waldur.seed.project_uuids[0]
    order = waldur.place_create_order(uuid, "one; rm -rf $(x)", limits={"cpu": 3}, slug="one")
    waldur.site.change("orders", order, attributes={"qos": "fast", "password": "sesame"})
    passes.process_orders(site)
    text = seen.read_text()
    assert "do-not-reveal" not in text
    assert "sesame" not in text
    assert waldur.token("agent") not in text
    document, _ = json.JSONDecoder().raw_decode(text)
    assert document["order"]["uuid"] == order
    assert (document["order"]["type"], document["order"]["limits"]) == ("Create", {"cpu": 3})
    assert document["order"]["attributes"]["qos"] == "fast"
    assert document["resource"]["name"] == "one; rm -rf $(x)"
    assert document["project"]["uuid"] == uuid
    assert document["offering"]["uuid"] == site.offering.uuid


FAILURES: dict[str, tuple[str, int, str, Result]] = {
    "fails": (
        "#!/bin/sh\necho no such table >&2\nexit 3\n",
        0o700,
        "ended with 3: no such table",
        Result.STUCK,
    ),
    "says nothing": ("#!/bin/sh\n", 0o700, "printed '', and not an object like", Result.STUCK),
    "says no word of ours": (
        '#!/bin/sh\necho \'{"decision": "yes"}\'\n',
        0o700,
        "and not an object",
        Result.STUCK,
    ),
    "is no program": ("echo", 0o600, "is no program that this user may run", Result.STUCK),
    "can be changed by others": (
        "#!/bin/sh\n",
        0o777,
        "others than root and this user can change",
        Result.STUCK,
    ),
    "has no interpreter": ("#!/no/such/thing\n", 0o700, "cannot start", Result.STUCK),
    "hangs": ("#!/bin/sh\nsleep 60\n", 0o700, "gave no answer within 1 s", Result.RETRY),
    "prints for ever": ("#!/bin/sh\nyes\n", 0o700, "printed more than", Result.STUCK),
    "prints one long line": (
        "#!/bin/sh\nhead -c 3000000 /dev/zero\n",
        0o700,
        "a line without end",
        Result.STUCK,
    ),
}


@pytest.mark.parametrize("how", FAILURES)
def test_a_hook_that_fails_decides_nothing(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path, how: str
) -> None:
    text, mode, sentence, result = FAILURES[how]
    settings = {"timeout_seconds": 1} if how == "hangs" else {}
    site = site_with(in_memory, program(tmp_path, text, mode), **settings)
    create(waldur, "one")
    report = passes.process_orders(site)
    (found,) = report.orders
    assert (found.result, states(waldur)["one"]) == (result, OrderState.PENDING_PROVIDER)
    assert sentence in found.message
    assert report.failed
    assert "a_one" not in site.backend.state.accounts  # type: ignore[attr-defined]
    # Once it is mended the order goes on.
    mended = program(tmp_path, '#!/bin/sh\necho \'{"decision": "accept"}\'\n')
    if how == "hangs":
        site = site_with(in_memory, mended)
    assert passes.process_orders(site).counted() == {"done": 1}


def test_one_order_that_makes_it_hang_keeps_back_no_other(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where there is time for one question only."""
    monkeypatch.setattr(decisions, "AT_ONCE", 1)
    seen = tmp_path / "seen"
    site = site_with(in_memory, program(tmp_path, "#!/bin/sh\nsleep 60\n"), str(seen))
    create(waldur, "odd")
    create(waldur, "good")
    until_s = decisions.ALL_WITHIN_S
    clock = SimpleNamespace(monotonic=iter([0, until_s - 1, until_s]).__next__)
    with monkeypatch.context() as hurried:
        hurried.setattr(decisions, "time", clock)
        assert passes.process_orders(site).counted() == {"retry": 2}
    program(tmp_path, DECIDE)
    assert passes.process_orders(site).counted() == {"done": 2}
    assert [json.loads(line)["resource"]["slug"] for line in seen.read_text().splitlines()] == ["good", "odd"]


def test_orders_that_are_executing_are_not_asked_about(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    site = site_with(in_memory, program(tmp_path, "#!/bin/sh\nexit 1\n"))
    create(waldur, "one")
    waldur.site.change("orders", next(iter(waldur.store.orders)).uuid, state="executing")
    assert passes.process_orders(site).counted() == {"done": 1}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_of_another_user_is_not_started(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    path = program(tmp_path, '#!/bin/sh\necho \'{"decision": "accept"}\'\n', 0o755)
    os.chown(path, 12345, -1)
    create(waldur, "one")
    report = passes.process_orders(site_with(in_memory, path))
    assert report.counted() == {"stuck": 1}
    assert "others than root and this user can change it" in report.orders[0].message


def test_a_script_that_others_can_change_is_not_given_to_its_interpreter(
    in_memory: SiteFactory, waldur: SimulatedWaldur, tmp_path: Path
) -> None:
    script = program(tmp_path, 'echo \'{"decision": "accept"}\'\n', 0o666)
    create(waldur, "one")
    site = site_with(in_memory, Path("/bin/sh"), str(script), "/dev/null", f"{tmp_path}/none")
    report = passes.process_orders(site)
    assert report.counted() == {"stuck": 1}
    assert f"{script} (order_hook.command) is not started: others" in report.orders[0].message
    script.chmod(0o644)
    assert passes.process_orders(site).counted() == {"done": 1}
