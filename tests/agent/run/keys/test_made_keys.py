# SPDX-License-Identifier: MIT
"""Keys of resources that a backend makes: from what Waldur asks to the secret in Waldur, and in no other place."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.config.model import Mode
from agent.core.errors import SiteAgentError
from agent.run import passes
from agent.run.keys import api_keys
from agent.run.preview.previews import preview
from agent.run.site import Site
from backends.testing.keys import KeyMemoryBackend
from simulator.server.faults import Fault
from simulator.server.waldur import SimulatedWaldur
from simulator.world.agent_records import ApiKey
from simulator.world.seed import Scenario
from tests.world import World

pytestmark = pytest.mark.events

KEY, OTHER = "ab" * 16, "cd" * 16


@pytest.fixture
def waldur() -> Iterator[SimulatedWaldur]:
    with SimulatedWaldur("8.1", scenario=Scenario(allocations_per_project=1)) as server:
        yield server


@pytest.fixture
def backend() -> KeyMemoryBackend:
    return KeyMemoryBackend()


@pytest.fixture
def site(waldur: SimulatedWaldur, tmp_path: Path, backend: KeyMemoryBackend) -> Site:
    """A site in step, whose backend makes keys."""
    world = World(waldur, tmp_path, order_processing_backend="slurm")
    world.fill()
    backend.state = world.cluster
    return replace(world.site, backend=backend)


def wanted(
    waldur: SimulatedWaldur, uuid: str, action: str, *, name: str = "", state: str = "Updating"
) -> str:
    """Let Waldur ask for something. Return the account of the key's resource."""
    resource = next(iter(waldur.store.resources))
    if uuid in waldur.store.api_keys:
        key = waldur.store.api_keys[uuid]
        key.state, key.pending_action = state, action
    else:
        waldur.store.api_keys.add(
            ApiKey(uuid=uuid, resource_uuid=resource.uuid, client_id=name, state=state, pending_action=action)
        )
    return str(resource.backend_id).lower()


def in_waldur(waldur: SimulatedWaldur, uuid: str = KEY) -> tuple[str, str]:
    key = waldur.store.api_keys[uuid]
    return key.state, key.error_message


def test_a_key_lives_from_its_order_to_its_end(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    account = wanted(waldur, KEY, "create", state="Creating")
    assert api_keys.answer(site, KEY) == f"issue key {KEY} of {account}; report key {KEY}"
    key = waldur.store.api_keys[KEY]
    assert (key.state, key.client_id) == ("OK", KEY)
    first = key.api_key
    assert backend.keys.opens(account, KEY, first)

    wanted(waldur, KEY, "rotate")
    api_keys.answer(site, KEY)
    assert in_waldur(waldur) == ("OK", "")
    assert not backend.keys.opens(account, KEY, first)
    assert backend.keys.opens(account, KEY, key.api_key)

    wanted(waldur, KEY, "pause")
    assert api_keys.answer(site, KEY) == f"pause key {KEY} of {account}; confirm key {KEY} paused"
    assert (in_waldur(waldur), backend.keys.opens(account, KEY, key.api_key)) == (("Paused", ""), False)
    wanted(waldur, KEY, "resume")
    api_keys.answer(site, KEY)
    assert (in_waldur(waldur), backend.keys.opens(account, KEY, key.api_key)) == (("OK", ""), True)

    wanted(waldur, KEY, "update")
    api_keys.answer(site, KEY)
    assert in_waldur(waldur)[0] == "Erred"
    assert "keeps no limits or models of single keys" in in_waldur(waldur)[1]

    wanted(waldur, KEY, "delete", state="Deleting")
    assert api_keys.answer(site, KEY) == f"end key {KEY} of {account}; confirm deletion of key {KEY}"
    assert (in_waldur(waldur)[0], backend.keys.digests) == ("Deleted", {})


def test_the_secret_is_in_waldur_and_nowhere_else(
    waldur: SimulatedWaldur, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wanted(waldur, KEY, "create", state="Creating")
    report = passes.process_orders(site)
    assert not report.failed
    secret = waldur.store.api_keys[KEY].api_key
    assert len(secret) > 20
    files = [file for file in site.state_dir.rglob("*") if file.is_file()]
    assert any(KEY.encode() in file.read_bytes() for file in files)  # the journal has it
    assert not [file for file in files if secret.encode() in file.read_bytes()]
    assert secret not in caplog.text
    assert KEY in caplog.text
    assert secret not in json.dumps(report.as_json())


def test_a_secret_that_waldur_did_not_get_is_replaced_and_no_second_key_comes_to_be(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    account = wanted(waldur, KEY, "create", state="Creating")
    waldur.inject(Fault(method="POST", path="set_key/", status=503, body="{}", times=1))
    with pytest.raises(SiteAgentError):
        api_keys.answer(site, KEY)
    assert in_waldur(waldur) == ("Creating", "")
    assert not passes.process_orders(site).failed
    assert list(backend.keys.digests) == [(account, KEY)]
    assert backend.keys.opens(account, KEY, waldur.store.api_keys[KEY].api_key)


def test_a_key_that_waldur_does_not_take_is_withdrawn(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    wanted(waldur, KEY, "create", state="Creating")
    waldur.inject(Fault(method="POST", path="set_key/", status=404, body="{}", times=1))
    report = passes.process_orders(site)
    assert [o.action.verb for o in report.outcomes if o.done] == ["issue key", "end key"]
    assert backend.keys.digests == {}


def test_an_outage_waits_and_a_refusal_is_reported(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    wanted(waldur, KEY, "create", state="Creating")
    backend.outage = lambda call: call == "issue"
    report = passes.process_orders(site)
    assert (in_waldur(waldur), report.later is not None) == (("Creating", ""), True)
    backend.outage = lambda _: False

    backend.keys.refusal = "at most 2 keys, see /etc/secret-place"
    passes.process_orders(site)
    state, message = in_waldur(waldur)
    assert state == "Erred"
    assert (
        message
        == "The site's cluster could not issue this key. The operators of the site find the reason in their log."
    )


def test_a_preview_shows_what_is_done_and_does_nothing(waldur: SimulatedWaldur, site: Site) -> None:
    account = wanted(waldur, KEY, "rotate", name="agent-7")
    planned = [action.line() for action in preview(site, Mode.ORDER_PROCESS).allowed]
    assert planned == [f"issue key agent-7 of {account}", f"report key {KEY}"]
    assert in_waldur(waldur) == ("Updating", "")


def test_a_preview_shows_what_the_policy_keeps_as_the_pass_does(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    account = wanted(waldur, KEY, "rotate", name="agent-7")
    rules = replace(site.offering.policy, protected_accounts=frozenset({account}))
    site = replace(site, offering=replace(site.offering, policy=rules))
    for mode in (Mode.ORDER_PROCESS, Mode.MEMBERSHIP_SYNC):
        found = preview(site, mode)
        assert not [action for action in found.allowed if "key" in action.verb], mode
        assert [each.action.verb for each in found.refused] == ["issue key"], mode
    report = passes.process_orders(site)
    assert [each.action.verb for each in report.refused] == ["issue key"]
    assert (in_waldur(waldur), backend.keys.digests) == (("Updating", ""), {})


def test_a_key_waits_for_the_account_of_its_resource(waldur: SimulatedWaldur, site: Site) -> None:
    wanted(waldur, KEY, "create", state="Creating")
    resource = next(iter(waldur.store.resources))
    name, resource.backend_id = resource.backend_id, ""
    assert "its resource has no account yet" in api_keys.answer(site, KEY)
    resource.backend_id = name
    api_keys.answer(site, KEY)
    assert in_waldur(waldur) == ("OK", "")


def test_what_was_used_with_a_key_is_reported_once_and_the_month_before_for_some_days(
    waldur: SimulatedWaldur, site: Site, backend: KeyMemoryBackend
) -> None:
    account = wanted(waldur, KEY, "", name="agent-7", state="OK")
    wanted(waldur, OTHER, "", name="agent-8", state="Deleted")
    backend.keys.used["2026-03"][account] = {"agent-7": {"cpu": 120}, "agent-8": {"mem": 61440}}
    backend.keys.used["2026-02"][account] = {"agent-7": {"cpu": 60}}

    def report(day: int) -> list[str]:
        run = passes.report_usage(site, clock=lambda: datetime(2026, 3, day, 12, tzinfo=UTC))
        assert run.problems == []
        # For totals, shares and keys together.
        assert run.effort.requests["GET /api/marketplace-provider-offerings/{uuid}/"] == 1, (
            run.effort.requests
        )
        return [o.action.line() for o in run.outcomes if o.action.verb == "report usage of key"]

    assert report(3) == [
        f"report usage of key agent-7 of {account} in 2026-02: cpu 1.00, mem 0.00",
        f"report usage of key agent-7 of {account} in 2026-03: cpu 2.00, mem 0.00",
        f"report usage of key agent-8 of {account} in 2026-03: cpu 0.00, mem 1.00",
    ]
    assert waldur.store.api_keys[KEY].usages == {
        "2026-02-01": {"cpu": "1.00", "mem": "0.00"},
        "2026-03-01": {"cpu": "2.00", "mem": "0.00"},
    }
    assert report(3) == []
    backend.keys.used["2026-03"][account]["agent-7"] = {"cpu": 120.5}  # type: ignore[dict-item]
    run = passes.report_usage(site, clock=lambda: datetime(2026, 3, 3, 12, tzinfo=UTC))
    assert f"counted cpu=120.5 of key agent-7 of account {account}" in "; ".join(run.problems)
    backend.keys.used["2026-03"][account]["agent-7"] = {"cpu": 120}
    # A key that the backend forgets has been used all the same.
    del backend.keys.used["2026-03"][account]["agent-8"]
    assert report(3) == []
    backend.keys.used["2026-02"][account] = {"agent-7": {"cpu": 90}}
    assert report(4) == []
    assert report(3) == [f"report usage of key agent-7 of {account} in 2026-02: cpu 1.50, mem 0.00"]
