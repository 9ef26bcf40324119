# SPDX-License-Identifier: MIT
"""Faults on demand, and the log that counts every request, lost ones too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from rig.processes import wait_until
from simulator.server.faults import Fault, FaultKind, throttled
from simulator.server.waldur import SimulatedWaldur
from tests.simulator.caller import Caller

_ME = "users/me/"
_APPROVE = "approve_by_provider"


def _statuses(agent: Caller, count: int) -> list[int]:
    return [agent.get(_ME).status_code for _ in range(count)]


def test_an_error_page_comes_as_often_as_asked(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(Fault(status=502, times=2, skip=1))
    assert _statuses(agent, 5) == [200, 502, 502, 200, 200]
    waldur.inject(Fault(status=503, times=None))
    assert _statuses(agent, 3) == [503] * 3
    waldur.faults.clear()
    assert _statuses(agent, 1) == [200]


def test_an_error_page_is_no_json(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(Fault(status=200))
    answer = agent.get(_ME)
    assert answer.headers["Content-Type"] == "text/html"
    with pytest.raises(requests.exceptions.JSONDecodeError):
        answer.json()


def test_throttling_says_when_to_come_back(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(throttled(retry_after_s=7))
    answer = agent.get(_ME)
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "7")
    assert list(answer.json()) == ["detail"]


def test_faults_choose_by_method_and_path(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(Fault(method="POST", path=r"set_state_done/$"))
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    assert agent.get(_ME).status_code == 200
    assert agent.move(order, _APPROVE, {}) == 200
    assert agent.move(order, "set_state_done") == 503
    assert agent.move(order, "set_state_done") == 200


@pytest.mark.parametrize("kind", [FaultKind.RESET, FaultKind.ANSWER])
@pytest.mark.parametrize(("carried_out", "state"), [(True, "executing"), (False, "pending-provider")])
def test_lost_requests_and_lost_answers(
    waldur: SimulatedWaldur, agent: Caller, kind: FaultKind, carried_out: bool, state: str
) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    waldur.inject(Fault(kind=kind, path=_APPROVE, carried_out=carried_out))
    if kind is FaultKind.RESET:
        with pytest.raises(requests.exceptions.ConnectionError):
            agent.move(order, _APPROVE, {})
    else:
        assert agent.move(order, _APPROVE, {}) == 503
    assert waldur.order(order).state.value == state
    assert waldur.requests.count(f"POST *{_APPROVE}/") == 1


def test_a_cut_off_body(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(Fault(kind=FaultKind.TRUNCATE))
    with pytest.raises((requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError)):
        agent.get(_ME)
    assert agent.get(_ME).status_code == 200


def test_slow_answers_do_not_hold_up_others(waldur: SimulatedWaldur, agent: Caller) -> None:
    waldur.inject(Fault(kind=FaultKind.DELAY, path="version", latency_ms=500_000))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(Caller(waldur, "staff").get, "version/")
        wait_until("it is slow", lambda: _struck(waldur) == 1)
        assert agent.get(_ME).status_code == 200
        assert not slow.done()
        waldur.stop()


def test_a_slow_answer_comes_in_the_end(waldur: SimulatedWaldur) -> None:
    waldur.inject(Fault(kind=FaultKind.DELAY, path="version", latency_ms=20))
    assert Caller(waldur, "staff").get("version/").status_code == 200
    assert _struck(waldur) == 1


def _struck(waldur: SimulatedWaldur) -> int:
    ((_, times),) = waldur.faults.armed()
    return times


def test_chances_are_repeatable(waldur: SimulatedWaldur, agent: Caller) -> None:
    runs = []
    for _ in range(2):
        waldur.faults.clear()
        waldur.inject(Fault(times=None, probability=0.5, seed=3))
        runs.append(_statuses(agent, 20))
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 503}


def test_the_log_counts_by_endpoint(waldur: SimulatedWaldur, agent: Caller) -> None:
    for name in ("one", "two"):
        agent.order(waldur.place_create_order(waldur.seed.project_uuids[0], name))
    agent.get(_ME)
    agent.get("nonsense/")
    assert waldur.request_counts() == {
        "GET marketplace-orders/{uuid}/": 2,
        "GET users/me/": 1,
        "GET nonsense/": 1,
    }
    assert waldur.requests.count("GET marketplace-*") == 2
    entry = waldur.requests.entries("GET users/*")[0]
    assert (entry.status, entry.username, entry.user_agent) == (200, "agent", "tests")
    waldur.requests.reset()
    assert waldur.request_counts() == {}


def test_the_log_keeps_bodies(waldur: SimulatedWaldur, agent: Caller) -> None:
    order = waldur.place_create_order(waldur.seed.project_uuids[0], "one")
    agent.move(order, "set_backend_id", {"backend_id": "job-1"})
    assert [e.body for e in waldur.requests.entries("POST *")] == [{"backend_id": "job-1"}]
