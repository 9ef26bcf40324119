# SPDX-License-Identifier: MIT
"""`simulate`: starts, says where it is, answers, and stops on the signals that stop a program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from tests.agent.cli.operator_site import REPOSITORY, run_program


@contextmanager
def simulation(*options: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "manage.py", "simulate", "--port", "0", *options]
    child = subprocess.Popen(
        words,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_and_stops(stop: signal.Signals) -> None:
    with simulation("--json", "--age", "8.1", "--projects", "3", "--customers", "1") as child:
        assert child.stdout is not None
        facts = json.loads(child.stdout.readline())
        assert len(facts["projects"]) == 3
        headers = {"Authorization": f"Token {facts['waldur_api_token']}"}
        offering = f"marketplace-provider-offerings/{facts['waldur_offering_uuid']}/"
        answer = requests.get(facts["waldur_api_url"] + offering, headers=headers, timeout=600)
        assert answer.status_code == 200
        control = requests.get(f"{facts['control']}requests", timeout=600)
        assert control.json()["counts"] == {"GET marketplace-provider-offerings/{uuid}/": 1}
        child.send_signal(stop)
        assert child.wait() == 0
        assert child.stderr is not None
        assert (child.stdout.read(), child.stderr.read()) == ("", "")


def test_what_it_says_to_people_and_to_whoever_takes_its_port() -> None:
    with simulation() as child:
        assert child.stdout is not None
        lines = [child.stdout.readline().rstrip() for _ in range(6)]
        port = lines[0].rpartition(":")[2].partition("/")[0]
        second = run_program("simulate", "--port", port)
        child.send_signal(signal.SIGTERM)
        assert child.wait() == 0
    assert [line.partition(": ")[0] for line in lines[:5]] == [
        "waldur_api_url",
        "waldur_api_token",
        "waldur_offering_uuid",
        "control",
        "projects",
    ]
    assert lines[5] == "Ctrl-C stops it."
    assert second.code == 1
    assert f"cannot listen on port {port}: Address already in use" in second.err
    assert "Traceback" not in second.err


@pytest.mark.parametrize(
    "words", [("--port", "99999"), ("--port", "-1"), ("--customers", "0"), ("--members", "-1")]
)
def test_numbers_that_cannot_be_are_refused(words: tuple[str, str]) -> None:
    said = run_program("simulate", *words)
    assert said.code == 2
    assert f"Invalid value for '{words[0]}'" in said.err
    assert "Traceback" not in said.err
