# SPDX-License-Identifier: MIT
"""Judge 3: the recording of a real October 2024 server, replayed request by request against the sim.

The recording is one story, so it is replayed once, in order; each capture is then a test of its own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from simulator.server.waldur import SimulatedWaldur
from tests.simulator.facts import captures
from tests.simulator.likeness import Comparison, Pairing
from tests.simulator.replay_world import make_world, tokens

# Captures that are sent (the story goes on) or skipped, and not judged, each with the reason.
NOT_JUDGED = {
    1: "a catalogue of event names; no agent reads it",
    41: "the allocation of the old plugin, with fields of its service settings; no agent reads it",
    128: "slurm-associations belong to the direct SLURM plugin",
    129: "slurm-allocations belong to the direct SLURM plugin",
    278: "invoices are the consumer's business",
}
# Lists in which the recorded server had rows of earlier runs, in addition to those of this one.
WITH_OLDER_ROWS = {17, 18, 19, 99, 104, 152, 282, 283}
# Of those, the ones where none of the recorded rows is of this run, or they are mixed.
SHAPE_ONLY = {152, 282, 283}
# The one request that was sent before the background processor had run.
BEFORE_THE_PROCESSOR = {38}

_CAPTURES = captures()
_NEEDS_CAPTURES = pytest.mark.skipif(not _CAPTURES, reason="no recorded captures: set WALDUR_FACTS_DIR")


class Replay:
    """Sends every capture once and keeps what was different about its answer."""

    def __init__(self, waldur: SimulatedWaldur) -> None:
        self._waldur = waldur
        self._tokens = tokens(waldur)
        self._pairing = Pairing()
        for recorded, simulated in _known_from_the_start(waldur).items():
            self._pairing.agree(recorded, simulated)
        self._session = requests.Session()
        self.differences: dict[int, list[str]] = {}

    def run(self) -> None:
        for capture in _CAPTURES:
            if capture["n"] not in BEFORE_THE_PROCESSOR:
                self._waldur.site.run_background()
            self._waldur.site.advance(0.01)
            answer = self._send(capture)
            if capture["n"] not in NOT_JUDGED:
                self.differences[capture["n"]] = self._differences(capture, answer)

    def _send(self, capture: dict[str, Any]) -> requests.Response:
        body = capture["body"]
        path = self._pairing.translate(capture["path"])
        data = None if body is None else self._pairing.translate(json.dumps(body))
        headers = {"User-Agent": "waldur-site-agent-replay/1", "Content-Type": "application/json"}
        token = self._tokens[capture["who"]]
        if token is not None:
            headers["Authorization"] = token
        url = self._waldur.root_url + path
        return self._session.request(capture["method"], url, data=data, headers=headers, timeout=600)

    def _differences(self, capture: dict[str, Any], answer: requests.Response) -> list[str]:
        if answer.status_code != capture["status"]:
            return [f"status {capture['status']} recorded, {answer.status_code}: {answer.text[:300]}"]
        found = _header_differences(capture, answer)
        if _body_kind(capture["response"]) != _answer_kind(answer):
            return [*found, f"{_body_kind(capture['response'])} recorded, {answer.text[:100]!r} simulated"]
        if _answer_kind(answer) == "json":
            comparison = Comparison(
                self._pairing,
                is_error=capture["status"] >= 400,
                has_older_rows=capture["n"] in WITH_OLDER_ROWS,
                shape_only=capture["n"] in SHAPE_ONLY,
            )
            comparison.compare(capture["response"], answer.json())
            found += comparison.differences
        return found


def _known_from_the_start(waldur: SimulatedWaldur) -> dict[str, str]:
    """What the recording names before any answer has it; everything else is learnt."""
    seeded = waldur.seed
    return {
        "328c8ffdb3014760ab897ac09e920e73": seeded.offering_uuid,
        "973efeac88444bcb90deccd926e2252b": seeded.plan_uuids[0],
        "466a003cc4f448a8a28c3e30482198d7": seeded.provider_uuid,
    }


def _body_kind(recorded: Any) -> str:
    if recorded is None:
        return "empty"
    return "page" if isinstance(recorded, dict) and "__not_json__" in recorded else "json"


def _answer_kind(answer: requests.Response) -> str:
    if not answer.content:
        return "empty"
    return "json" if answer.headers.get("Content-Type") == "application/json" else "page"


def _header_differences(capture: dict[str, Any], answer: requests.Response) -> list[str]:
    recorded, found = capture["response_headers"], []
    for name in ("X-Result-Count", "Link", "WWW-Authenticate", "Location"):
        if (name in recorded) != (name in answer.headers):
            found.append(f"header {name}: {recorded.get(name)!r} recorded")
    count_is_ours = capture["n"] not in WITH_OLDER_ROWS
    if count_is_ours and recorded.get("X-Result-Count") != answer.headers.get("X-Result-Count"):
        found.append(f"count {recorded['X-Result-Count']} recorded, {answer.headers['X-Result-Count']}")
    if count_is_ours and _rels(recorded.get("Link")) != _rels(answer.headers.get("Link")):
        found.append(f"links {recorded['Link']} recorded, {answer.headers['Link']}")
    return found


def _rels(link: str | None) -> list[str]:
    return [part.rpartition('rel="')[2].rstrip('"') for part in (link or "").split(", ")]


@pytest.fixture(scope="module")
def replay() -> dict[int, list[str]]:
    with make_world() as waldur:
        story = Replay(waldur)
        story.run()
    return story.differences


@_NEEDS_CAPTURES
def test_most_of_the_recording_is_judged() -> None:
    numbers = {capture["n"] for capture in _CAPTURES}
    assert NOT_JUDGED.keys() <= numbers
    assert len(numbers) - len(NOT_JUDGED) >= 265


_JUDGED = [
    pytest.param(c["n"], id=f"{c['n']:03d} {c['label']}") for c in _CAPTURES if c["n"] not in NOT_JUDGED
]


@pytest.mark.parametrize("number", _JUDGED or [pytest.param(0, marks=_NEEDS_CAPTURES)])
def test_answer_is_like_the_recorded_one(replay: dict[int, list[str]], number: int) -> None:
    assert replay[number] == []
