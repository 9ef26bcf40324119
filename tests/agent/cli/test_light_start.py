# SPDX-License-Identifier: MIT
"""Commands that only read and write this head node's files start without the libraries of those that do more."""

from __future__ import annotations

import sys

import pytest

from rig.redis_server import RedisServer
from tests.agent.cli.operator_site import OperatorSite, run_program

HEAVY = {
    "requests", "urllib3", "celery", "kombu", "redis", "rich", "jinja2", "prometheus_client", "backends.base",
    "backends.registry", "agent.core.actions", "agent.core.plans", "agent.run.site", "agent.waldur.client",
}  # fmt: skip
LOADS_BACKENDS = {
    "requests", "urllib3", "agent.run.site", "agent.waldur.client", "agent.plan.policy.gate", "backends.base",
    "backends.registry", "backends.usernames.registry", "agent.core.actions", "agent.run.service.configuration",
}  # fmt: skip
SCRIPT = """
import sys
from agent.cli.main import run
code = run(sys.argv[1:])
print(*sorted(sys.modules))
sys.exit(code)
"""

# Programs with a body of their own: a lazy command, and the console, which is none.
COLLECTING = """
import gc, sys, types
from agent.cli.commands import services
from agent.cli.commands.shared import LazyCommand
from agent.cli.main import carry_out
body = types.ModuleType("body")
body.command = lambda *_: print(gc.isenabled(), gc.get_freeze_count() > 10_000)
sys.modules["body"] = sys.modules["agent.cli.web.console"] = body
carry_out([], services.console if sys.argv[1:] else LazyCommand("look", body="body"))
"""


def loaded(*words: str) -> tuple[int, set[str]]:
    """Run a command in a process of its own; return its exit code and the modules that it has imported."""
    ended = run_program("-c", SCRIPT, *words, program=sys.executable)
    return ended.code, set(ended.out.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("healthz",), 1),
        (("audit",), 0),
        (("approve",), 0),
        (("approve", "--revoke", "abc"), 1),
        (("pause", "OFFERING"), 0),
        (("pause", "OFFERING", "--off"), 0),
        (("forget", "homes"), 0),
    ],
)
def test_what_needs_no_backend_loads_none(site: OperatorSite, words: tuple[str, ...], code: int) -> None:
    uuid = site.waldur.seed.offering_uuid
    ended, modules = loaded(*(uuid if word == "OFFERING" else word for word in words), "-c", site.configure())
    assert ended == code
    assert "agent.config.load" in modules
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", [(), ("console",)])
def test_a_command_looks_for_garbage_in_what_it_makes_and_not_in_its_modules(words: tuple[str, ...]) -> None:
    ended = run_program("-c", COLLECTING, *words, program=sys.executable)
    assert (ended.code, ended.out.split()) == (0, ["True", "True"]), ended.err


def test_status_asks_the_broker_without_celery_backends_and_pages(
    site: OperatorSite, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WALDUR_SITE_AGENT_BROKER_URL", redis_server.url)
    ended, modules = loaded("status", "-c", site.configure())
    assert ended == 0
    assert "kombu.pidbox" in modules, "it asks the workers"
    assert modules & {"celery", "tasks.app"} == set()
    assert modules & LOADS_BACKENDS == set()
    assert modules & {"rich", "jinja2", "prometheus_client", "agent.cli.status_page"} == set()
